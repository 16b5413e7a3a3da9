/* SPDX-License-Identifier: Apache-2.0 */
/* After the load: each report's command runs, one after the other, and what it prints is sent as a file of the report's
 * name; then the kernel's log; then the system is asked to shut down, by the command that we were told (`arg`). */
#include "attendant/reports.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/reboot.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attendant/tracer.h"
#include "init/base/event_loop.h"
#include "init/base/power_off.h"
#include "init/base/read_file.h"
#include "init/base/serial_line.h"
#include "init/container/child.h"
#include "init/container/entry_point.h"
#include "init/container/slowdown.h"
#include "init/container/trace_log.h"
#include "init/settings/settings.h"

#define MOST_REPORTS 16
#define MOST_TEXT (1 << 20)
#define MOST_OUTPUT (256 * 1024)

static struct report {
    const char *name;
    struct list argv;
    bool errors; /* its standard error is sent, too */
} reports[MOST_REPORTS];

static size_t count, next;
static pid_t running;
static bool shutting_down;
static struct watch out;
static char said[MOST_OUTPUT];
static size_t said_length;

void reports_read(void) {
    size_t length = 0;
    char *text = read_file("/reports", MOST_TEXT, &length);
    char *end = text + (text != NULL ? length : 0);
    for (char *record = text; record < end; record += strlen(record) + 1) {
        if (strncmp(record, "name ", 5) == 0 && count < MOST_REPORTS)
            reports[count++].name = record + 5;
        else if (strcmp(record, "errors") == 0 && count > 0)
            reports[count - 1].errors = true;
        else if (strncmp(record, "arg ", 4) == 0 && count > 0 && list_add(&reports[count - 1].argv, record + 4))
            continue;
        else
            fatal("", "/reports is damaged");
    }
}

static void take_out(struct watch *watch, short events) {
    (void)events;
    char rest[4096];
    size_t room = sizeof said - said_length;
    ssize_t got = read(watch->fd, room > 0 ? said + said_length : rest, room > 0 ? room : sizeof rest);
    if (got > 0 && room > 0)
        said_length += (size_t)got;
    else if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
        loop_remove(watch);
}

static pid_t start(struct list *argv, int to, bool errors) {
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    int out = to >= 0 ? to : nothing;
    pid_t pid = child_start(argv, (struct stdio){nothing, out, errors ? out : nothing, false}, false, NULL);
    close(nothing);
    return pid;
}

_Noreturn static void end_now(const char *why) {
    line_note("", "%s: the machine was ended without a shutdown", why);
    sync();
    reboot(RB_AUTOBOOT);
    for (;;)
        pause();
}

static void shut_down(void) {
    shutting_down = true;
    line_drain();
    line_text(WIRE_EXIT, "0 0 ");
    tracer_end();
    running = settings.argv.count > 0 ? start(&settings.argv, -1, false) : -1;
    if (running < 0)
        end_now("there is no command to shut down by");
}

static void go_on(void) {
    int ends[2];
    said_length = 0;
    if (next == count) {
        shut_down();
        return;
    }
    if (pipe2(ends, O_CLOEXEC) != 0)
        end_now("pipe2");
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    loop_add(&out, ends[0], POLLIN, take_out);
    running = start(&reports[next].argv, ends[1], reports[next].errors);
    close(ends[1]);
    if (running < 0)
        end_now("fork");
}

bool reports_exit(pid_t pid, int status) {
    if (running <= 0 || pid != running)
        return false;
    running = 0;
    if (shutting_down) {
        if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
            end_now("the command to shut down by is not there");
        return true;
    }
    /* What is in the pipe is read; a process that was left behind may hold it open for ever. */
    for (struct pollfd more = {.fd = out.fd, .events = POLLIN}; out.fd >= 0 && poll(&more, 1, 0) > 0;)
        take_out(&out, more.revents);
    if (out.fd >= 0)
        loop_remove(&out);
    if (WIFEXITED(status) && WEXITSTATUS(status) != 127)
        line_file(reports[next].name, said, said_length);
    next++;
    go_on();
    return true;
}

/* --- what the exercise asks of a container --- */

/* A system's own init knows what it is asked for. */
bool entry_heeds(int number) {
    (void)number;
    return true;
}

void entry_signal(int number) {
    if (number == SIGKILL)
        end_now("its time to shut down is over");
    if (!shutting_down && running == 0)
        go_on();
}

void trace_log_mark(const char *name) {
    (void)name;
}

unsigned slowdown(uint64_t since) {
    (void)since;
    return 100; /* the host, which knows how long the system took before, sets its limits */
}

/* --- what the layers below ask for --- */

_Noreturn void power_off(void) {
    line_drain();
    _exit(1);
}

_Noreturn void fatal(const char *symbol, const char *format, ...) {
    va_list args;
    va_start(args, format);
    if (getpid() == 1) { /* nobody listens yet but who reads the console */
        fputs("attendant: ", stderr);
        vfprintf(stderr, format, args);
        fputs("\n", stderr);
        exit(1); /* PID 1 that ends is a panic, which is seen */
    }
    line_fatal(symbol, format, args);
    va_end(args);
    power_off();
}
