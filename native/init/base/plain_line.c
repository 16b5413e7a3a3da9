/* SPDX-License-Identifier: Apache-2.0 */
#include "init/base/plain_line.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "common/wire.h"

bool plain_line_asked(void) {
    const char *how = getenv("VT_CONSOLE");
    return how != NULL && strcmp(how, "plain") == 0;
}

int plain_line_open(void) {
    int fd = fcntl(0, F_DUPFD_CLOEXEC, 10);
    struct termios mode;
    if (tcgetattr(fd, &mode) == 0) {
        cfmakeraw(&mode);
        mode.c_oflag |= OPOST | ONLCR;
        mode.c_cflag |= CLOCAL | CREAD;
        mode.c_cc[VMIN] = 0;
        tcsetattr(fd, TCSANOW, &mode);
    }
    return fd;
}

static void write_all(int fd, const char *data, size_t length) {
    while (length > 0) {
        ssize_t written = write(fd, data, length);
        if (written < 0 && errno != EINTR)
            return;
        if (written > 0) {
            data += written;
            length -= (size_t)written;
        }
    }
}

/* Our own words, on a line of their own. */
static void say(int fd, const char *text, size_t length) {
    char line[1200];
    int whole = snprintf(line, sizeof line, "vmtailor: %.*s\n", (int)(length < 1100 ? length : 1100), text);
    write_all(fd, line, (size_t)whole);
}

/* Of "STATUS SIGNAL WHY". */
static void say_exit(int fd, const char *payload, size_t length) {
    char given[256] = "", text[320];
    memcpy(given, payload, length < sizeof given - 1 ? length : sizeof given - 1);
    char *rest = given;
    long status = strtol(rest, &rest, 10), signal = strtol(rest, &rest, 10);
    rest += strspn(rest, " ");
    int made = signal != 0 ? snprintf(text, sizeof text, "the container was ended by signal %ld", signal)
                           : snprintf(text, sizeof text, "the container ended with status %ld", status);
    if (rest[0] != '\0')
        made += snprintf(text + made, sizeof text - (size_t)made, ": %s", rest);
    say(fd, text, (size_t)made);
}

void plain_line_say(int fd, char type, const void *payload, size_t length) {
    const char *text = payload;
    const char *behind = memchr(text, '\0', length); /* of a symbol, before the words of a note */
    switch (type) {
    case WIRE_STDOUT:
    case WIRE_STDERR:
        write_all(fd, text, length);
        break;
    case WIRE_FATAL: /* notes of what is missing, and was not asked for, are for a fit */
        if (behind != NULL)
            say(fd, behind + 1, length - (size_t)(behind + 1 - text));
        break;
    case WIRE_EXIT:
        say_exit(fd, text, length);
        break;
    default:
        break;
    }
}
