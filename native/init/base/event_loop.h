/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting: ppoll and waitpid, and nothing else that a kernel might lack. */
#ifndef VT_EVENT_LOOP_H
#define VT_EVENT_LOOP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* `not_before_ns`: it is not asked for earlier, on the monotonic clock; what can wait is done many at a time. */
struct watch {
    int fd;
    short events;
    uint64_t not_before_ns;
    void (*ready)(struct watch *watch, short events);
};

/* `reaped` hears of every process that has ended, ours and orphans of the container's. */
void loop_start(void (*reaped)(pid_t pid, int status));
void loop_add(struct watch *watch, int fd, short events, void (*ready)(struct watch *watch, short events));
void loop_remove(struct watch *watch);
/* Wait for one of: something to read, a child's end, `deadline_ns` on the monotonic clock. Then handle it. */
void loop_step(uint64_t deadline_ns);
bool loop_has_children(void);

#endif
