/* SPDX-License-Identifier: Apache-2.0 */
/* Wakes itself up through an event counter; where the kernel has none, through a pipe. It prints the same either way.
 */
#include <stdint.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

int main(void) {
    uint64_t one = 1, got = 0;
    int ends[2];
    ends[0] = ends[1] = eventfd(0, EFD_CLOEXEC);
    if (ends[0] < 0 && pipe(ends) != 0)
        return 1;
    if (write(ends[1], &one, sizeof one) != sizeof one || read(ends[0], &got, sizeof got) != sizeof got)
        return 2;
    printf("woken %d time\n", (int)got);
    return 0;
}
