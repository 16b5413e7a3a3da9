/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the log: the tracer's lines, what the kernel says of modules and programs, and what devices there are. */
#ifndef SMALL_INIT_WATCH_LOG_H
#define SMALL_INIT_WATCH_LOG_H

/* Until the machine ends. */
_Noreturn void watch_log(void);

#endif
