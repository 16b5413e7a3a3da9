/* SPDX-License-Identifier: Apache-2.0 */
/* What the guest's programs must know of Loongson-3 (64-bit little-endian MIPS); the same names as in the folders
 * beside this one. */
#ifndef VT_ARCH_H
#define VT_ARCH_H

#include <stdint.h>
#include <sys/sysmacros.h>
#include <time.h>

/* The counter that the marks of a boot carry: the processor's own (CC, by rdhwr), which counts from reset, in
 * nanoseconds of QEMU's clock. The machine's firmware tells of 800 MHz and the kernel takes half of it for the
 * counter's frequency, 2.5 ns; QEMU 7.2 rounds a count down to 2 ns, so that the kernel's clock is fast by a quarter
 * there. The counter has 32 bits: what it began with is added to the kernel's clock, which begins within a
 * round; rounds before it are for the host to add. */
static inline uint64_t arch_cycles(void) {
    struct timespec now;
    uint64_t count;
    if (clock_gettime(CLOCK_MONOTONIC, &now) != 0)
        return 0;
    __asm__ volatile("rdhwr %0, $2" : "=r"(count));
    uint64_t counted = ((uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec) * 2 / 5;
    return (counted + ((count - counted) & UINT32_MAX)) * 2;
}

/* Device number of the machine's second serial port: ttyS0, since the driver of PCI comes before that of the board. */
#define ARCH_SECOND_PORT makedev(4, 64)

/* What the kernel needs in order to execute a program of 32 bits, by the first 40 bytes of it: n32 is a flag of it
 * (EF_MIPS_ABI2 in e_flags), all others are o32. */
#define ARCH_PROGRAMS_OF_32_BITS(head) ((head)[36] & 0x20 ? "MIPS32_N32" : "MIPS32_O32")

#endif
