// SPDX-License-Identifier: GPL-2.0-or-later
#ifndef VT_DIE_H
#define VT_DIE_H

// Say what went wrong on standard error and end QEMU: a run whose figures would be wrong has no use.
_Noreturn void die(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
