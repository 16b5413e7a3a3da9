/* SPDX-License-Identifier: Apache-2.0 */
/* What init starts: the entry point and the commands of the exercise as the container, and programs of ours. */
#ifndef VT_CHILD_H
#define VT_CHILD_H

#include <stdbool.h>
#include <sys/types.h>

#include "common/records.h"
#include "init/container/order.h"

struct stdio {
    int in, out, err;
    bool terminal; /* `in` is a terminal to be made the controlling one */
};

/* Prepare what all children share: identity, environment, volumes. */
void child_prepare(void);
/* Fork; the child becomes the container's `argv`. `status_fd` (if not NULL) is where child_status records (program.h)
 * come from. With `mark`, it marks "entry" just before it executes. Traced when the run asks for it. */
pid_t child_start(struct list *argv, struct stdio stdio, bool mark, int *status_fd);
/* Fork; the child becomes a further process of the container, or one of our builtins (native/builtin). Never traced.
 * `status_fd` as above. -1 and errno where there can be none. */
pid_t child_further(struct order *order, struct stdio stdio, int *status_fd);
/* Start a program of ours outside the container (the client), with standard output on `out`. */
pid_t child_tool(char *const argv[], int out);
/* Kill it, or (`session`) all that its session's group holds. */
void child_kill(pid_t pid, bool session);

#endif
