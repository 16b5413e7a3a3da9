/* SPDX-License-Identifier: Apache-2.0 */
/* What tracers take of the machine. */
#ifndef VT_TRACERS_H
#define VT_TRACERS_H

#include <stdint.h>

/* Processor time of the tracers that run; where the kernel does not tell, as much as they usually take. */
uint64_t tracers_ns(void);

#endif
