// SPDX-License-Identifier: Apache-2.0
// Moves to each processor that it may use, and says on which it runs then.
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>

int main(void) {
    cpu_set_t all, one;
    if (sched_getaffinity(0, sizeof all, &all) < 0) {
        perror("sched_getaffinity");
        return 1;
    }
    for (int number = 0; number < CPU_SETSIZE; number++) {
        if (!CPU_ISSET(number, &all))
            continue;
        CPU_ZERO(&one);
        CPU_SET(number, &one);
        if (sched_setaffinity(0, sizeof one, &one) < 0) {
            perror("sched_setaffinity");
            return 1;
        }
        printf("processor %d\n", sched_getcpu());
    }
    return 0;
}
