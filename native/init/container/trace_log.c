/* SPDX-License-Identifier: Apache-2.0 */
/* What tracers write: whole lines go to the trace disk, with our marks between them; or, line by line, to where the
 * refused ones are told. */
#include "init/container/trace_log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/large.h"
#include "init/base/disks.h"
#include "init/base/event_loop.h"
#include "init/base/power_off.h"
#include "init/base/serial_line.h"
#include "init/container/refused.h"
#include "init/settings/settings.h"

#define LINE 65536
/* A tracer writes a line for each call. Read one by one, each would cost two switches of the processor beside the
 * tracer's own four; a pipe holds what is written in this time, or its writer waits. */
#define PAUSE_NS (5 * 1000000u)
#define MOST_PIECES 16 /* the writer may be as fast as we are */

/* A tracer writes a call's first half when it begins, so lines of two tracers must be put together apart. */
struct source {
    struct watch watch;
    char held[LINE];
    size_t length;
};

static const char *const PATHS[] = {"/dev/.vt-trace-entry", "/dev/.vt-trace-command"};
LARGE struct source trace_sources[2];
static int disk = -1;
static bool full;

static void put(const char *data, size_t length) {
    while (length > 0 && !full) {
        ssize_t written = write(disk, data, length);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0) {
            full = true;
            line_note("", "write(trace disk): %s; the trace ends here", written < 0 ? strerror(errno) : "full");
            return;
        }
        data += written;
        length -= (size_t)written;
    }
}

static void put_lines(const char *data, size_t length) {
    if (!refused_wanted()) {
        put(data, length);
        return;
    }
    for (const char *end = data + length, *next; data < end; data = next + 1) {
        next = memchr(data, '\n', (size_t)(end - data));
        if (next == NULL)
            next = end;
        refused_line(data, (size_t)(next - data));
    }
}

static bool take(struct source *source) {
    ssize_t got = read(source->watch.fd, source->held + source->length, LINE - source->length);
    if (got <= 0)
        return false;
    source->length += (size_t)got;
    char *last = memrchr(source->held, '\n', source->length);
    size_t whole = last != NULL ? (size_t)(last - source->held) + 1 : source->length == LINE ? LINE : 0;
    put_lines(source->held, whole);
    source->length -= whole;
    memmove(source->held, source->held + whole, source->length);
    return true;
}

static void ready(struct watch *watch, short events) {
    (void)events;
    for (int pieces = 0; pieces < MOST_PIECES && take((struct source *)watch); pieces++)
        ;
    if (!refused_wanted()) /* what a run was refused is told before anybody can end it */
        watch->not_before_ns = now_ns() + PAUSE_NS;
}

static void open_disk(void) {
    if (getenv("VT_OUT") == NULL)
        fatal("", "a trace is asked for, but there is no trace disk (VT_OUT)");
    if (mknod("/dev/.vt-out", S_IFBLK | 0600, disk_number(3)) != 0)
        fatal("", "mknod(the trace disk): %s", strerror(errno));
    disk = open("/dev/.vt-out", O_WRONLY | O_CLOEXEC);
    if (disk < 0)
        fatal("", "open(the trace disk, fourth): %s", strerror(errno));
    unlink("/dev/.vt-out");
}

/* A day, an hour, a minute and a second. */
#define APART_S (86400 + 3600 + 60 + 1)

/* The time and the numbers of processes differ from kernel to kernel, and not between two runs of one machine on the
 * instruction clock. So the run that is watched begins later, and its processes have others than the one that is not:
 * what a program prints of them is known by that. */
static void set_apart(void) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now) == 0) {
        now.tv_sec += APART_S;
        clock_settime(CLOCK_REALTIME, &now); /* left as it is where it cannot be set */
    }
    pid_t spare = fork();
    if (spare == 0)
        _exit(0);
    if (spare > 0)
        waitpid(spare, NULL, 0);
}

void trace_log_open(void) {
    if (settings.trace.count == 0)
        return;
    if (getenv("VT_TOOLS") == NULL)
        fatal("", "tracing is asked for, but there is no tools volume (VT_TOOLS)");
    if (!refused_wanted()) {
        open_disk();
        set_apart();
    }
    for (size_t i = 0; i < 2; i++) {
        int fd = -1;
        if (mkfifo(PATHS[i], 0600) == 0)
            fd = open(PATHS[i], O_RDWR | O_NONBLOCK | O_CLOEXEC);
        if (fd < 0)
            fatal("", "mkfifo(%s): %s", PATHS[i], strerror(errno));
        trace_sources[i].watch.fd = fd;
        if (!refused_wanted())
            loop_add(&trace_sources[i].watch, fd, POLLIN, ready);
    }
}

static void drain(void) {
    for (size_t i = 0; i < 2; i++)
        while (take(&trace_sources[i]))
            ;
}

void trace_log_entry(uint64_t real_ns) {
    trace_log_mark("entry");
    if (settings.trace.count == 0 || !refused_wanted())
        return;
    /* Not read before: what was seen earlier is ours, and only now we know when that ended. */
    refused_begin(real_ns);
    for (size_t i = 0; i < 2; i++)
        loop_add(&trace_sources[i].watch, trace_sources[i].watch.fd, POLLIN, ready);
}

void trace_log_mark(const char *name) {
    if (disk < 0)
        return;
    char line[80];
    drain();
    put(line, (size_t)snprintf(line, sizeof line, "+++ vmtailor %s +++\n", name));
}

void trace_log_close(void) {
    if (settings.trace.count == 0)
        return;
    drain();
    refused_close();
    if (disk < 0)
        return;
    for (size_t i = 0; i < 2; i++)
        if (trace_sources[i].length > 0) {
            put(trace_sources[i].held, trace_sources[i].length);
            put("\n", 1);
        }
    put("+++ vmtailor end of trace +++\n", 30);
    if (fsync(disk) != 0)
        line_note("", "fsync(trace disk): %s", strerror(errno));
}
