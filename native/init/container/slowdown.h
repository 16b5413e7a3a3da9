/* SPDX-License-Identifier: Apache-2.0 */
/* How much longer everything takes here than on a machine that nothing slows. */
#ifndef VT_SLOWDOWN_H
#define VT_SLOWDOWN_H

#include <stdint.h>

/* In percent, from 100 to 800: by emulation, by what runs beside this machine, and by tracers since `began`. Measured
 * when asked, and asked only where a limit of time is over: machines that are fast enough pay nothing for it. */
unsigned slowdown(uint64_t began);

#endif
