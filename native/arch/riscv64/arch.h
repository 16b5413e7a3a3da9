/* SPDX-License-Identifier: Apache-2.0 */
/* What the guest's programs must know of 64-bit RISC-V; the same names as in the folders beside this one. */
#ifndef VT_ARCH_H
#define VT_ARCH_H

#include <stdint.h>
#include <sys/sysmacros.h>

/* The counter that the marks of a boot carry: the machine's timer, 10 MHz on `virt`, in nanoseconds. The barrier keeps
 * it from being read ahead of what is marked. */
static inline uint64_t arch_cycles(void) {
    uint64_t ticks;
    __asm__ volatile("fence\n\trdtime %0" : "=r"(ticks));
    return ticks * 100;
}

/* Device number of a second serial port: ttyS1. */
#define ARCH_SECOND_PORT makedev(4, 65)

/* What the kernel needs in order to execute a program of 32 bits, by the first 40 bytes of it. */
#define ARCH_PROGRAMS_OF_32_BITS(head) ((void)(head), "COMPAT")

#endif
