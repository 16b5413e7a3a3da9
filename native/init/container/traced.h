/* SPDX-License-Identifier: Apache-2.0 */
/* A start under the tracer: through it, then through `init --exec`. */
#ifndef VT_TRACED_H
#define VT_TRACED_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/records.h"

#define LAST_PID 32768

/* In a child: become the tracer, which starts the second half. */
_Noreturn void traced_become(const struct list *argv, int status_fd, bool mark);
/* `init --exec FD STATUS MARK LIMIT`: second half of a traced start. */
int traced_second_half(int argc, char **argv);
/* Is this process a tracer of ours? */
bool traced_is_tracer(pid_t pid);
/* Processor time of the tracers that run; where the kernel does not tell, as much as they usually take. */
uint64_t tracers_ns(void);

#endif
