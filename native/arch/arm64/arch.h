/* SPDX-License-Identifier: Apache-2.0 */
/* What the guest's programs must know of 64-bit ARM processors; the same names as in the folders beside this one. */
#ifndef VT_ARCH_H
#define VT_ARCH_H

#include <stdint.h>
#include <sys/sysmacros.h>

/* The counter that the marks of a boot carry: the virtual counter, in nanoseconds whatever its frequency is. The
 * barrier keeps it from being read ahead of what is marked. */
static inline uint64_t arch_cycles(void) {
    uint64_t ticks, per_second;
    __asm__ volatile("isb\n\tmrs %0, cntvct_el0\n\tmrs %1, cntfrq_el0" : "=r"(ticks), "=r"(per_second));
    if (per_second == 0)
        return 0;
    return (uint64_t)((unsigned __int128)ticks * 1000000000u / per_second);
}

/* Device number of the machine's second serial port: ttyS0, since the first is of another kind (ttyAMA0). */
#define ARCH_SECOND_PORT makedev(4, 64)

/* What the kernel needs in order to execute a program of 32 bits, by the first 40 bytes of it. */
#define ARCH_PROGRAMS_OF_32_BITS(head) ((void)(head), "COMPAT")

#endif
