/* SPDX-License-Identifier: Apache-2.0 */
/* A start under the tracer, which attaches to the child; then through `init --exec`. */
#ifndef VT_TRACED_H
#define VT_TRACED_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/records.h"

#define LAST_PID 32768

/* Pipes between a child and its tracer, which are both children of init: so the tracer is no child that the container
 * could wait for. */
struct handover {
    int number[2];   /* from the child: its process number, where it and the tracer count */
    int attached[2]; /* from what the tracer starts: a byte, once the child is traced */
};

/* Before the fork. False and errno when there can be none. */
bool traced_prepare(struct handover *handover);
/* In the child: wait for the tracer, then become the second half. */
_Noreturn void traced_become(const struct list *argv, int status_fd, bool mark, const struct handover *handover);
/* In init: the child's number, or -1 when it did not come so far. */
pid_t traced_number(const struct handover *handover);
/* In another child: become the tracer of `number`, which has a byte written to `attached`. */
_Noreturn void traced_attach(pid_t number, bool mark, int attached);
/* `init --attached FD`: started by the tracer when it has attached. */
int traced_say_attached(const char *fd);
/* `init --exec FD STATUS MARK`: second half of a traced start. */
int traced_second_half(int argc, char **argv);
/* Is this process a tracer of ours? */
bool traced_is_tracer(pid_t pid);
/* Processor time of the tracers that run; where the kernel does not tell, as much as they usually take. */
uint64_t tracers_ns(void);

#endif
