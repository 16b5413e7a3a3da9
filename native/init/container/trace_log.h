/* SPDX-License-Identifier: Apache-2.0 */
/* What tracers write, copied to the trace disk. */
#ifndef VT_TRACE_LOG_H
#define VT_TRACE_LOG_H

void trace_log_open(void);
void trace_log_mark(const char *name);
void trace_log_close(void);

#endif
