/* SPDX-License-Identifier: Apache-2.0 */
/* The end of the machine, in order or not. */
#ifndef VT_POWER_OFF_H
#define VT_POWER_OFF_H

/* Write what is not on disk, say what is left to say, and end. */
_Noreturn void power_off(void);

/* The boot cannot go on: say why and which kernel symbol would help ("" when none), power off. */
_Noreturn void fatal(const char *symbol, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
