/* SPDX-License-Identifier: Apache-2.0 */
#include "init/base/event_loop.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "init/base/power_off.h"

#define FEW 16 /* as many as there are without further processes */
#define MOST 320

static struct watch *few[FEW];
static struct watch **watches = few;
static size_t count, room = FEW;
/* Once there are more than a few: as many as `watches` has room for. */
static struct pollfd *many_polls;
static struct watch **many_asked;
static bool children = true;
static void (*on_end)(pid_t pid, int status);

static void on_child(int number) {
    (void)number; /* only interrupts ppoll */
}

void loop_start(void (*reaped)(pid_t pid, int status)) {
    on_end = reaped;
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGCHLD);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    sigaction(SIGCHLD, &(struct sigaction){.sa_handler = on_child}, NULL);
    signal(SIGPIPE, SIG_IGN);
}

static void make_room(void) {
    struct watch **more = room < MOST ? malloc(MOST * sizeof *more) : NULL;
    many_polls = malloc(MOST * sizeof *many_polls);
    many_asked = malloc(MOST * sizeof *many_asked);
    if (more == NULL || many_polls == NULL || many_asked == NULL)
        fatal("", "too many things to watch");
    memcpy(more, watches, count * sizeof *more);
    watches = more;
    room = MOST;
}

void loop_add(struct watch *watch, int fd, short events, void (*ready)(struct watch *watch, short events)) {
    watch->fd = fd;
    watch->events = events;
    watch->not_before_ns = 0;
    watch->ready = ready;
    if (count == room)
        make_room();
    watches[count++] = watch;
}

void loop_remove(struct watch *watch) {
    for (size_t i = 0; i < count; i++)
        if (watches[i] == watch) {
            watches[i] = watches[--count];
            break;
        }
    close(watch->fd);
    watch->fd = -1;
}

bool loop_has_children(void) {
    return children;
}

static void reap(void) {
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        on_end(pid, status);
    children = pid == 0;
}

void loop_step(uint64_t deadline_ns) {
    struct pollfd few_polls[FEW], *polls = room == FEW ? few_polls : many_polls;
    struct watch *few_asked[FEW], **asked = room == FEW ? few_asked : many_asked;
    size_t asked_count = count;
    uint64_t now = now_ns();
    for (size_t i = 0; i < asked_count; i++) {
        struct watch *watch = asked[i] = watches[i];
        bool waits = watch->not_before_ns > now;
        polls[i] = (struct pollfd){.fd = watch->events != 0 && !waits ? watch->fd : -1, .events = watch->events};
        if (waits && watch->not_before_ns < deadline_ns)
            deadline_ns = watch->not_before_ns;
    }
    uint64_t left = deadline_ns > now ? deadline_ns - now : 0;
    struct timespec timeout = {(time_t)(left / 1000000000u), (long)(left % 1000000000u)};
    sigset_t none;
    sigemptyset(&none);
    int ready = ppoll(polls, asked_count, deadline_ns == UINT64_MAX ? NULL : &timeout, &none);
    if (ready < 0 && errno != EINTR)
        fatal("", "ppoll: %d", errno);
    for (size_t i = 0; ready > 0 && i < asked_count; i++)
        if (polls[i].revents != 0 && asked[i]->fd >= 0)
            asked[i]->ready(asked[i], polls[i].revents);
    reap();
}
