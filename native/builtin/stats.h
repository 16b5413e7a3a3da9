/* SPDX-License-Identifier: Apache-2.0 */
/* What the machine and the container use, as records on standard output. */
#ifndef VT_STATS_H
#define VT_STATS_H

int stats(void);
int top(void);

#endif
