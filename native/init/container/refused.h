/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that the kernel refused, told to the host: each kind once, then how often. For a run that watches itself. */
#ifndef VT_REFUSED_H
#define VT_REFUSED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether this run wants them told, in place of a whole trace on a disk. */
bool refused_wanted(void);
/* The container begins at this time of the guest's clock: what the tracer saw before was ours. */
void refused_begin(uint64_t real_ns);
/* One line of the tracer, without its end. */
void refused_line(const char *line, size_t length);
/* The last counts. */
void refused_close(void);

#endif
