/* SPDX-License-Identifier: Apache-2.0 */
/* What the attendant starts: commands of the system, and the client and the sampler, which stand on our disk. */
#ifndef VT_PROGRAMS_H
#define VT_PROGRAMS_H

/* Before our disk is left. */
void programs_hold(void);

#endif
