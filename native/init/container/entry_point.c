/* SPDX-License-Identifier: Apache-2.0 */
/* The entry point: its start, its standard streams on the wire, its end. */
#include "init/container/entry_point.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/large.h"
#include "common/signals.h"
#include "init/base/event_loop.h"
#include "init/base/power_off.h"
#include "init/base/read_file.h"
#include "init/base/serial_line.h"
#include "init/container/child.h"
#include "init/container/program.h"
#include "init/container/terminal.h"
#include "init/container/trace_log.h"
#include "init/machine/root.h"
#include "init/settings/settings.h"

#define MOST_STATUS 65536

static pid_t entry_pid;
static bool ended;
static int end_code, end_signal;
static char why_not_executed[160];

static struct watch out, err, in, status_pipe;
/* From the host, not yet taken by the entry point: it may send so much beyond what we gave credit for. On a port credit
 * is given for many bytes at once. */
#define MOST_PENDING (2 * WIRE_PAYLOAD)
#define MOST_PENDING_PORT (128 * 1024)
#define CREDIT_STEP (32 * 1024)
LARGE char entry_pending[2 * MOST_PENDING_PORT];
static size_t pending_start, pending_length, uncredited;
static bool stdin_ended;

LARGE char entry_block[WIRE_BLOCK];

static void relay(struct watch *watch, short events) {
    (void)events;
    char small[WIRE_PAYLOAD];
    char *data = line_is_port() ? entry_block : small;
    ssize_t got = read(watch->fd, data, line_is_port() ? sizeof entry_block : sizeof small);
    if (got > 0)
        line_send(watch == &err ? WIRE_STDERR : WIRE_STDOUT, data, (size_t)got);
    else if (got == 0 || (errno != EAGAIN && errno != EINTR))
        loop_remove(watch); /* end of file; on a terminal, EIO */
    if (line_is_full())
        out.events = err.events = 0;
}

void entry_output_go(void) {
    if (!line_is_full())
        out.events = err.events = POLLIN;
}

bool entry_streams_wait(void) {
    return line_is_full();
}

static void close_stdin(void) {
    if (in.fd < 0)
        return;
    if (!settings.terminal) {
        loop_remove(&in);
    } else if (write(in.fd, "\x04", 1) < 0) {
        return;
    }
    stdin_ended = false;
}

static void give_credit(size_t taken) {
    uncredited += taken;
    if (uncredited == 0 || (line_is_port() && uncredited < CREDIT_STEP && pending_length > 0))
        return;
    line_text(WIRE_CREDIT, "%zu", uncredited);
    uncredited = 0;
}

static void feed(struct watch *watch, short events) {
    (void)events;
    ssize_t written = pending_length > 0 ? write(watch->fd, entry_pending + pending_start, pending_length) : 0;
    if (written < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    size_t taken = written < 0 ? pending_length : (size_t)written; /* nobody reads: dropped, as a pipe's writer would */
    pending_length -= taken;
    pending_start = pending_length > 0 ? pending_start + taken : 0;
    give_credit(taken);
    if (pending_length == 0) {
        watch->events = 0;
        if (written < 0)
            loop_remove(watch);
        else if (stdin_ended)
            close_stdin();
    }
}

static void hear_status(struct watch *watch, short events) {
    (void)events;
    struct child_status status;
    if (read(watch->fd, &status, sizeof status) != (ssize_t)sizeof status) {
        loop_remove(watch);
        return;
    }
    if (status.what == 'm') {
        line_mark("entry", status.stamp);
        trace_log_entry(status.stamp.real_ns);
    } else {
        status.call[sizeof status.call - 1] = '\0';
        status.symbol[sizeof status.symbol - 1] = '\0';
        snprintf(why_not_executed, sizeof why_not_executed, "%s: %s", status.call, strerror(status.error));
        if (status.symbol[0] != '\0')
            line_note(status.symbol, "%s", why_not_executed);
    }
}

/* The same device: a link would have another name than programs that look for the console expect. */
static void show_as_console(const char *path) {
    unlink("/dev/console");
    int place = open("/dev/console", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (place < 0 || mount(path, "/dev/console", NULL, MS_BIND, NULL) != 0)
        line_note("", "mount(%s on /dev/console): %s", path, strerror(errno));
    if (place >= 0)
        close(place);
}

static int open_terminal(int *slave) {
    char path[TERMINAL_PATH];
    int master = terminal_open(settings.rows, settings.cols, slave, path);
    if (master < 0)
        fatal("UNIX98_PTYS", "open(%s): %s", path, strerror(errno));
    show_as_console(path);
    return master;
}

static void start_on_terminal(int *status) {
    int slave;
    int master = open_terminal(&slave);
    entry_pid = child_start(&settings.argv, (struct stdio){slave, slave, slave, true}, true, status);
    close(slave);
    loop_add(&out, master, POLLIN, relay);
    loop_add(&in, fcntl(master, F_DUPFD_CLOEXEC, 3), 0, feed);
}

static void pipe_or_fatal(int ends[2]) {
    if (pipe2(ends, O_CLOEXEC) != 0)
        fatal("", "pipe2: %s", strerror(errno));
}

static void start_on_pipes(int *status) {
    int to[2], from[2], from_err[2];
    if (settings.stdin_relay) {
        pipe_or_fatal(to);
        fcntl(to[1], F_SETFL, O_NONBLOCK);
    } else {
        to[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
        to[1] = -1;
        if (to[0] < 0)
            fatal("", "open(/dev/null): %s", strerror(errno));
    }
    pipe_or_fatal(from);
    pipe_or_fatal(from_err);
    entry_pid = child_start(&settings.argv, (struct stdio){to[0], from[1], from_err[1], false}, true, status);
    close(to[0]);
    close(from[1]);
    close(from_err[1]);
    /* A container that reads its own output, through /proc, must not keep us waiting for it. */
    fcntl(from[0], F_SETFL, O_NONBLOCK);
    fcntl(from_err[0], F_SETFL, O_NONBLOCK);
    loop_add(&out, from[0], POLLIN, relay);
    loop_add(&err, from_err[0], POLLIN, relay);
    if (to[1] >= 0)
        loop_add(&in, to[1], 0, feed);
}

/* What we start from now on, the entry point first, counts its processes for itself: it is PID 1, as in an engine. */
static void count_anew(void) {
    if (!settings.pid_one || unshare(CLONE_NEWPID) == 0)
        return;
    line_note("PID_NS", "unshare(CLONE_NEWPID): %s; the entry point is not PID 1", strerror(errno));
    settings.pid_one = false;
    root_proc_read_only();
}

void entry_start(void) {
    int status = -1;
    out.fd = err.fd = in.fd = -1;
    if (settings.argv.count == 0)
        fatal("", "the image names no entry point, and no command was given");
    child_prepare();
    count_anew();
    if (settings.terminal)
        start_on_terminal(&status);
    else
        start_on_pipes(&status);
    if (entry_pid < 0)
        fatal("", "fork(entry point): %s", strerror(errno));
    loop_add(&status_pipe, status, POLLIN, hear_status);
}

bool entry_exit(pid_t pid, int status) {
    if (pid != entry_pid)
        return false;
    ended = true;
    end_signal = WIFSIGNALED(status) ? signal_said(WTERMSIG(status)) : 0;
    end_code = end_signal != 0 ? 128 + end_signal : WEXITSTATUS(status);
    while (status_pipe.fd >= 0)
        hear_status(&status_pipe, 0);
    return true;
}

bool entry_ended(int *exit_code, int *by_signal, const char **why) {
    *exit_code = end_code;
    *by_signal = end_signal;
    *why = why_not_executed;
    return ended;
}

void entry_signal(int number) {
    if (!ended && entry_pid > 0 && number > 0 && number <= 64)
        kill(entry_pid, signal_here(number));
}

/* A mask of signals in a process's status; all of them where it does not say. */
static unsigned long long mask_of(const char *status, const char *name) {
    const char *line = strstr(status, name);
    return line != NULL ? strtoull(line + strlen(name), NULL, 16) : ~0ull;
}

bool entry_heeds(int number) {
    size_t length;
    number = signal_here(number);
    char *status = settings.pid_one && number > 0 && number <= 64 && number != SIGKILL && number != SIGSTOP
                       ? read_file("/proc/1/status", MOST_STATUS, &length)
                       : NULL;
    if (status == NULL)
        return true; /* for all we know */
    unsigned long long taken = mask_of(status, "\nSigCgt:") | mask_of(status, "\nSigBlk:");
    free(status);
    return (taken >> (number - 1) & 1) != 0;
}

bool entry_streams_open(void) {
    return out.fd >= 0 || err.fd >= 0;
}

void entry_stdin(const uint8_t *data, size_t length) {
    size_t most = line_is_port() ? MOST_PENDING_PORT : MOST_PENDING;
    if (length > most - pending_length)
        length = most - pending_length; /* more than the credit we gave */
    if (length > sizeof entry_pending - pending_start - pending_length) {
        memmove(entry_pending, entry_pending + pending_start, pending_length);
        pending_start = 0;
    }
    memcpy(entry_pending + pending_start + pending_length, data, length);
    pending_length += length;
    in.events = POLLOUT;
}

void entry_stdin_end(void) {
    stdin_ended = true;
    in.events = POLLOUT;
}

void entry_window(const char *size) {
    if (settings.terminal)
        terminal_resize(out.fd, size);
}
