/* SPDX-License-Identifier: Apache-2.0 */
/* After the load: what the system says of itself, and its shutdown. */
#ifndef VT_REPORTS_H
#define VT_REPORTS_H

#include <stdbool.h>
#include <sys/types.h>

/* /reports: records "name NAME", then "arg WORD" for each word of a command, each ended by a NUL. */
void reports_read(void);
/* A process has ended: was it a report's, or the shutdown's? */
bool reports_exit(pid_t pid, int status);

#endif
