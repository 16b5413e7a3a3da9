// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>

int main(void) {
    puts("hello from a container");
    return 0;
}
