/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's clocks, in nanoseconds. */
#ifndef VT_CLOCK_H
#define VT_CLOCK_H

#include <stdint.h>

/* Since the kernel's clock started. */
uint64_t now_ns(void);
/* Since 1970. */
uint64_t real_ns(void);

#endif
