/* SPDX-License-Identifier: Apache-2.0 */
/* What tracers write: copied to the trace disk, or told to the host where it is about a refused call (refused.h). */
#ifndef VT_TRACE_LOG_H
#define VT_TRACE_LOG_H

#include <stdint.h>

void trace_log_open(void);
/* The container begins, at this time of the guest's clock. */
void trace_log_entry(uint64_t real_ns);
void trace_log_mark(const char *name);
void trace_log_close(void);

#endif
