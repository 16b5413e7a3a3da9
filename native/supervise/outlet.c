// SPDX-License-Identifier: Apache-2.0
#include "supervise/outlet.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FULL (256u << 10) // queued bytes from which on a queue is full
#define MOST (64u << 20)  // the most that is ever queued
#define PART 4096         // of a pipe, what always goes when it can be written to
#define WAIT_NS 20000000  // the longest wait for others who write to the same stream

// O_NONBLOCK belongs to the open file, which the caller's shell may share. A pipe or terminal that is opened anew is
// ours alone; a master side of a terminal would be another one.
static int open_anew(int fd) {
    char path[32];
    unsigned number;
    if (ioctl(fd, TIOCGPTN, &number) == 0)
        return -1;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

void outlet_open(struct outlet *outlet, int fd) {
    struct stat what;
    *outlet = (struct outlet){.fd = fd};
    if (fstat(fd, &what))
        return;
    if (S_ISSOCK(what.st_mode)) {
        outlet->way = WAY_SOCKET;
    } else if (S_ISFIFO(what.st_mode) || isatty(fd)) {
        int anew = open_anew(fd);
        outlet->way = anew < 0 ? WAY_TIMED : WAY_NONBLOCKING;
        if (anew >= 0)
            outlet->fd = anew;
    }
}

// Where the stream cannot be opened anew, a timer ends a write that others have made wait.
static ssize_t write_timed(int fd, const void *data, size_t length) {
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGURG};
    struct itimerspec soon = {.it_value.tv_nsec = WAIT_NS, .it_interval.tv_nsec = WAIT_NS};
    bool timed = timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 && timer_settime(timer, 0, &soon, NULL) == 0;
    ssize_t written = write(fd, data, length < PART ? length : PART);
    int error = errno;
    if (timed)
        timer_delete(timer);
    errno = error == EINTR ? EAGAIN : error;
    return written;
}

static ssize_t write_some(const struct outlet *outlet, const void *data, size_t length) {
    if (outlet->way == WAY_SOCKET)
        return send(outlet->fd, data, length, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (outlet->way == WAY_TIMED)
        return write_timed(outlet->fd, data, length);
    return write(outlet->fd, data, length);
}

static void fail(struct outlet *outlet, int error) {
    outlet->failed = error;
    bytes_free(&outlet->queue);
}

void outlet_write(struct outlet *outlet) {
    while (bytes_left(&outlet->queue) > 0) {
        ssize_t written = write_some(outlet, bytes_first(&outlet->queue), bytes_left(&outlet->queue));
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0 && errno != EAGAIN)
            fail(outlet, errno);
        if (written < 0)
            return;
        bytes_drop(&outlet->queue, (size_t)written);
        if (outlet->way == WAY_TIMED) // it is asked anew whether more goes
            return;
    }
}

void outlet_put(struct outlet *outlet, const void *data, size_t length) {
    size_t left = bytes_left(&outlet->queue), room = left < MOST ? MOST - left : 0;
    if (outlet->failed)
        return;
    if (length > room || !bytes_add(&outlet->queue, data, length)) {
        size_t part = room < length ? room : 0;
        outlet->dropped += length - (bytes_add(&outlet->queue, data, part) ? part : 0);
    }
    if (left == 0 && outlet->way != WAY_TIMED)
        outlet_write(outlet);
}

bool outlet_full(const struct outlet *outlet) {
    return bytes_left(&outlet->queue) >= FULL;
}

uint64_t outlet_close(struct outlet *outlet) {
    uint64_t lost = outlet->dropped + bytes_left(&outlet->queue);
    bytes_free(&outlet->queue);
    return lost;
}
