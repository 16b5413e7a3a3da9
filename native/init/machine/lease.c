/* SPDX-License-Identifier: Apache-2.0 */
#include "init/machine/lease.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/large.h"
#include "init/base/serial_line.h"
#include "init/settings/settings.h"

#define CLIENT "/.vmtailor/builtin"
/* Servers answer within a second; a switch that looks for loops first lets nothing pass for half a minute. */
#define PATIENCE_MS 40000

LARGE char lease_words[96];

bool lease_asked(void) {
    return settings.net != NULL && strcmp(settings.net, "dhcp") == 0;
}

bool lease_given(void) {
    return settings.net == lease_words;
}

/* A line of the client's. */
static bool read_line(int fd) {
    uint64_t deadline = now_ns() + PATIENCE_MS * 1000000ull;
    size_t length = 0;
    while (length < sizeof lease_words - 1 && now_ns() < deadline) {
        struct pollfd one = {.fd = fd, .events = POLLIN};
        if (poll(&one, 1, (int)((deadline - now_ns()) / 1000000u) + 1) <= 0)
            continue;
        ssize_t got = read(fd, lease_words + length, sizeof lease_words - 1 - length);
        if (got <= 0)
            return false;
        length += (size_t)got;
        char *end = memchr(lease_words, '\n', length);
        if (end == NULL)
            continue;
        *end = '\0';
        return true;
    }
    return false;
}

const char *lease_wait(void) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        line_note("", "pipe: %s", strerror(errno));
        return NULL;
    }
    pid_t pid = fork();
    if (pid == 0) {
        setsid();
        dup2(ends[1], 1);
        execl(CLIENT, CLIENT, "dhcp", "eth0", settings.hostname != NULL ? settings.hostname : "", (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    bool found = pid > 0 && read_line(ends[0]);
    close(ends[0]);
    if (!found)
        line_note("", "no DHCP server has given eth0 an address; the container starts without one");
    return found ? lease_words : NULL;
}
