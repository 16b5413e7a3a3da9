// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>

int main(void) {
    puts("Hello from a machine made to measure.");
    return 3;
}
