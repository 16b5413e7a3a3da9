/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A port has no name before there is /dev, /proc or /sys, and its major number is one that the kernel gives out as its
 * drivers come. So those numbers are tried: the port is the device on which the host greets with the run's key.
 */
#include "init/base/port.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "init/base/incoming.h"
#include "init/base/power_off.h"

#define NODE "/.vmtailor/rw/port"
#define NUMBER 1 /* the first port that is no console */
#define WAIT_NS 5000000000u
#define PAUSE_NS 200000

/* The numbers that the kernel gives out, in its order. */
static const struct { unsigned first, last; } MAJORS[] = {{254, 234}, {511, 384}};

static void pause_shortly(void) {
    nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
}

/* Nothing comes before the port is open, and until then the host has not been told that it is. */
static bool is_greeted(int fd, const uint8_t key[WIRE_KEY], uint64_t deadline) {
    uint8_t head[WIRE_HEADER];
    while (now_ns() < deadline) {
        ssize_t got = read(fd, head, sizeof head);
        if (got > 0)
            return got == sizeof head && head[2] == WIRE_GREETING && wire_is_port_head(head, key);
        if (got < 0 && errno != EAGAIN && errno != EINTR)
            return false;
        pause_shortly();
    }
    return false;
}

static int open_number(unsigned major) {
    if (mknod(NODE, S_IFCHR | 0600, makedev(major, NUMBER)) != 0)
        return -1;
    int fd = open(NODE, O_RDWR | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    unlink(NODE);
    return fd;
}

static int find(const uint8_t key[WIRE_KEY], uint64_t deadline) {
    for (size_t i = 0; i < sizeof MAJORS / sizeof *MAJORS; i++)
        for (unsigned major = MAJORS[i].first; major >= MAJORS[i].last; major--) {
            int fd = open_number(major);
            if (fd >= 0 && is_greeted(fd, key, deadline))
                return fd;
            if (fd >= 0)
                close(fd);
        }
    return -1;
}

void port_open(const uint8_t key[WIRE_KEY]) {
    uint64_t deadline = now_ns() + WAIT_NS;
    int fd;
    while ((fd = find(key, deadline)) < 0) { /* the kernel makes the port beside other work */
        if (now_ns() >= deadline)
            fatal("VIRTIO_CONSOLE", "there is no virtio port to the host");
        pause_shortly();
    }
    incoming_begin(fd, key);
}
