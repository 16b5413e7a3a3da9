/* SPDX-License-Identifier: Apache-2.0 */
/* All that the guest's programs must know of the processor they are compiled for: here x86_64. Another one is another
 * folder beside this one, with the same names in it (native/Makefile chooses by ARCH). */
#ifndef VT_ARCH_H
#define VT_ARCH_H

#include <stdint.h>
#include <sys/sysmacros.h>

/* The counter that the marks of a boot carry: the time stamp counter. */
static inline uint64_t arch_cycles(void) {
    return __builtin_ia32_rdtsc();
}

/* Device number of the machine's second serial port: ttyS1. */
#define ARCH_SECOND_PORT makedev(4, 65)

/* What the kernel needs in order to execute a program of 32 bits, by the first 40 bytes of it: x32 is of the 64-bit
 * machine (e_machine 62). */
#define ARCH_PROGRAMS_OF_32_BITS(head) ((head)[18] == 62 ? "X86_X32_ABI" : "IA32_EMULATION")

#endif
