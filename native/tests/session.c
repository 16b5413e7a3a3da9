/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs further processes as init does, under the sanitizers, on this host and without a container. Frames from the
 * host on standard input, those to the host on standard output: type (1 byte), length (4, little endian), payload. Its
 * end is that of the container.
 *
 *     session < FRAMES
 *
 * With the word `port`, what comes in is as on a virtio port, under a key of zeros, and frames may be as long as there.
 */
#include "init/container/session.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/clock.h"
#include "init/base/event_loop.h"
#include "init/base/power_off.h"
#include "init/base/serial_line.h"
#include "init/container/child.h"
#include "init/container/program.h"
#include "init/machine/capabilities.h"

#define HEAD 5
#define AFTER_NS 500000000u

static uint8_t held[1 << 20];
static size_t held_length;
static bool ended, on_port;
static struct wire_port port;

static void write_all(const void *data, size_t length) {
    const char *from = data;
    while (length > 0) {
        ssize_t written = write(1, from, length);
        if (written < 0 && errno != EINTR)
            exit(1);
        from += written > 0 ? written : 0;
        length -= written > 0 ? (size_t)written : 0;
    }
}

void line_send(char type, const void *payload, size_t length) {
    if (length > (on_port ? WIRE_BLOCK : WIRE_PAYLOAD))
        abort(); /* it must fit one frame */
    uint8_t head[HEAD] = {(uint8_t)type, (uint8_t)length, (uint8_t)(length >> 8), 0, 0};
    write_all(head, sizeof head);
    write_all(payload, length);
}

bool line_is_port(void) {
    return on_port;
}

void line_note(const char *symbol, const char *format, ...) {
    (void)symbol;
    (void)format;
}

_Noreturn void fatal(const char *symbol, const char *format, ...) {
    (void)symbol;
    fprintf(stderr, "%s\n", format);
    abort();
}

bool capabilities_limited(void) {
    return true;
}

pid_t child_further(struct order *order, struct stdio stdio, int *status_fd) {
    int status[2];
    if (pipe2(status, O_CLOEXEC) != 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0) {
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        signal(SIGPIPE, SIG_DFL);
        setsid();
        if (stdio.terminal)
            ioctl(stdio.in, TIOCSCTTY, 0);
        dup2(stdio.in, 0);
        dup2(stdio.out, 1);
        dup2(stdio.err, 2);
        for (size_t i = 0; i < order->env.count; i++)
            putenv(order->env.items[i]);
        execvp(order->argv.items[0], order->argv.items);
        struct child_status why = {.what = 'e', .error = errno, .exit_code = errno == ENOENT ? 127 : 126};
        snprintf(why.call, sizeof why.call, "execve(%.60s)", order->argv.items[0]);
        (void)!write(status[1], &why, sizeof why);
        _exit(why.exit_code);
    }
    close(status[1]);
    *status_fd = status[0];
    return pid;
}

static void take_frame(void *context, char type, const uint8_t *payload, size_t length) {
    (void)context;
    session_frame(type, payload, length);
}

static void hear(struct watch *watch, short events) {
    (void)events;
    ssize_t got = read(watch->fd, held + held_length, sizeof held - held_length);
    if (got <= 0) {
        ended = true;
        loop_remove(watch);
        return;
    }
    if (on_port) {
        if (!wire_port_decode(&port, held, (size_t)got, take_frame, NULL))
            abort();
        return;
    }
    held_length += (size_t)got;
    size_t at = 0;
    while (held_length - at >= HEAD) {
        size_t length = held[at + 1] | (size_t)held[at + 2] << 8;
        if (held_length - at < HEAD + length)
            break;
        uint8_t *copy = malloc(length + (length == 0)); /* its own memory, so that reading past it is seen */
        memcpy(copy, held + at + HEAD, length);
        session_frame((char)held[at], copy, length);
        free(copy);
        at += HEAD + length;
    }
    memmove(held, held + at, held_length - at);
    held_length -= at;
}

static void reaped(pid_t pid, int status) {
    session_exit(pid, status);
}

int main(int argc, char **argv) {
    static struct watch host;
    on_port = argc > 1 && strcmp(argv[1], "port") == 0;
    loop_start(reaped);
    loop_add(&host, 0, POLLIN, hear);
    while (!ended)
        loop_step(sessions_advance());
    sessions_close();
    for (uint64_t end = now_ns() + AFTER_NS; sessions_open() && now_ns() < end;)
        loop_step(end);
    sessions_end();
    return 0;
}
