/* SPDX-License-Identifier: Apache-2.0 */
#include "small-init/watch_log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "small-init/say.h"
#include "small-init/seen.h"
#include "small-init/watch.h"

#define LINE 65536
#define PERIOD_MS 500 /* so much is lost at most when the machine is switched off */
/* A tracer writes a line for each call. Read one by one, each would cost two switches of the processor beside the
 * tracer's own four; the pipe holds what is written in this time, or its writer waits. */
#define PAUSE_NS (5 * 1000000)
#define LOOK_S 3 /* between two looks at devices and modules, which take a while themselves */
#define PIPE_BYTES (1 << 20)
#define INSTANCE WATCH "/events/instances/vmtailor"

/* A stream of lines. `before` and `after` go around each; without them lines are passed on as they are. */
struct source {
    int fd;
    const char *before, *after;
    char held[LINE];
    size_t length;
};

static struct source calls = {.fd = -1}, kernel = {.fd = -1, .before = "+++ vmtailor kernel ", .after = " +++"};
static const int disk = WATCH_DISK;
static bool full, dirty;

static void put(const char *data, size_t length) {
    while (length && !full) {
        ssize_t written = write(disk, data, length);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0) {
            full = true;
            fprintf(stderr, "small init: the log ends here: %s\n", written < 0 ? strerror(errno) : "its disk is full");
            return;
        }
        dirty = true;
        data += written;
        length -= (size_t)written;
    }
}

static void put_lines(const struct source *from, const char *data, size_t length) {
    if (!from->before) {
        put(data, length);
        return;
    }
    for (const char *end = data + length, *next; data < end; data = next + 1) {
        next = memchr(data, '\n', (size_t)(end - data));
        if (!next)
            next = end;
        put(from->before, strlen(from->before));
        put(data, (size_t)(next - data));
        put(from->after, strlen(from->after));
        put("\n", 1);
    }
}

/* One piece of what is there to be read now; whole lines go on, so that two sources never stand in one line. Whether
 * there was one. */
static bool take_piece(struct source *source) {
    ssize_t got = read(source->fd, source->held + source->length, LINE - source->length);
    if (got <= 0)
        return false;
    source->length += (size_t)got;
    char *last = memrchr(source->held, '\n', source->length);
    size_t whole = last ? (size_t)(last - source->held) + 1 : source->length == LINE ? LINE : 0;
    put_lines(source, source->held, whole);
    source->length -= whole;
    memmove(source->held, source->held + whole, source->length);
    return true;
}

/* All of it, within bounds: the writer may be as fast as we are. */
static void take(struct source *source) {
    for (int pieces = 0; pieces < PIPE_BYTES / LINE && take_piece(source); pieces++)
        ;
}

static void put_own(const char *kind, const char *one, const char *two) {
    char line[1024];
    int length = snprintf(line, sizeof line, "+++ vmtailor %s %s %s +++\n", kind, one, two);
    if (length > 0 && (size_t)length < sizeof line)
        put(line, (size_t)length);
}

static bool enable(const char *event) {
    char path[256];
    snprintf(path, sizeof path, INSTANCE "/events/%s/enable", event);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool done = fd >= 0 && write(fd, "1", 1) == 1;
    if (fd >= 0)
        close(fd);
    return done;
}

/* The kernel's own events, in an instance of their own: whatever the system traces stays as it is. */
static void open_events(void) {
    static const char *const wanted[] = {"module/module_request", "module/module_load", "sched/sched_process_exec"};
    mkdir(WATCH "/events", 0700);
    if (mount("tracefs", WATCH "/events", "tracefs", 0, NULL) || mkdir(INSTANCE, 0700)) {
        put_own("events", "none", strerror(errno));
        return;
    }
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        put_own("events", enable(wanted[i]) ? "on" : "none", wanted[i]);
    kernel.fd = open(INSTANCE "/trace_pipe", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
}

static long long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

static void say_time(void) {
    struct timespec now;
    char text[64];
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(text, sizeof text, "%lld.%06ld", (long long)now.tv_sec, now.tv_nsec / 1000);
    put_own("time", text, dirty ? "busy" : "idle");
}

_Noreturn void watch_log(void) {
    say_time();
    open_events();
    calls.fd = open(WATCH_FIFO, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (calls.fd < 0)
        fatal("%s: %s", WATCH_FIFO, strerror(errno));
    fcntl(calls.fd, F_SETPIPE_SZ, PIPE_BYTES);
    bool sees = seen_open(put_own);
    if (sees)
        seen_look(); /* a short boot is over before the first period is */
    long long synced = now_ms(), looked = synced;
    for (;;) {
        struct pollfd both[] = {{calls.fd, POLLIN, 0}, {kernel.fd, POLLIN, 0}};
        poll(both, kernel.fd < 0 ? 1 : 2, PERIOD_MS);
        if (both[0].revents)
            take(&calls);
        if (both[1].revents)
            take(&kernel);
        if (both[0].revents | both[1].revents)
            nanosleep(&(struct timespec){0, PAUSE_NS}, NULL);
        long long now = now_ms();
        if (sees && now - looked >= LOOK_S * 1000) {
            seen_look();
            looked = now_ms();
        }
        if (now - synced >= PERIOD_MS) {
            say_time();
            fdatasync(disk);
            dirty = false;
            synced = now_ms();
        }
    }
}
