// SPDX-License-Identifier: Apache-2.0
int main_of_kernel;
