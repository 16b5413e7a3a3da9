/* SPDX-License-Identifier: Apache-2.0 */
/* What the container's root may do. */
#ifndef VT_CAPABILITIES_H
#define VT_CAPABILITIES_H

#include <stdbool.h>

/* Is it less than everything? Not where the run is privileged, nor in a kernel without MULTIUSER. */
bool capabilities_limited(void);
/* PID 1, before anything of the container runs: all that it executes later is limited. */
void capabilities_limit(void);
/* The second half of a traced start, whose tracer is not limited. False and errno when it cannot be. */
bool capabilities_limit_traced(void);
/* In a child that becomes the container: without what programs of ours are given. False and errno likewise. */
bool capabilities_leave_ours(void);

#endif
