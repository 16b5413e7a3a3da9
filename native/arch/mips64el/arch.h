/* SPDX-License-Identifier: Apache-2.0 */
/* What the guest's programs must know of Loongson-3 (64-bit little-endian MIPS); the same names as in the folders
 * beside this one. */
#ifndef VT_ARCH_H
#define VT_ARCH_H

#include <stdint.h>
#include <sys/sysmacros.h>
#include <time.h>

/* The counter that the marks of a boot carry. The processor's own (CC, by rdhwr) counts from reset, at half of the 800
 * MHz that the machine's firmware tells of, and has 32 bits: it is what it began with on top of the kernel's clock,
 * which begins within the first of its rounds. */
static inline uint64_t arch_cycles(void) {
    const uint64_t round_ns = (UINT64_C(1) << 32) * 5 / 2;
    struct timespec now;
    uint64_t count;
    if (clock_gettime(CLOCK_MONOTONIC, &now) != 0)
        return 0;
    __asm__ volatile("rdhwr %0, $2" : "=r"(count));
    uint64_t clock_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    uint64_t count_ns = (count & UINT32_MAX) * 5 / 2;
    return clock_ns + (count_ns + round_ns - clock_ns % round_ns) % round_ns;
}

/* Device number of a second serial port: ttyS1. */
#define ARCH_SECOND_PORT makedev(4, 65)

/* What the kernel needs in order to execute programs of 32 bits. */
#define ARCH_PROGRAMS_OF_32_BITS "MIPS32_O32"

#endif
