/* SPDX-License-Identifier: Apache-2.0 */
#include "small-init/say.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void line(const char *format, va_list args) {
    fputs("small init: ", stderr);
    vfprintf(stderr, format, args);
    fputs("\n", stderr);
}

void say(const char *format, ...) {
    va_list args;
    va_start(args, format);
    line(format, args);
    va_end(args);
}

_Noreturn void fatal(const char *format, ...) {
    va_list args;
    va_start(args, format);
    line(format, args);
    va_end(args);
    exit(1);
}

void read_text(const char *path, char *to, size_t size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t held = fd < 0 ? 0 : read(fd, to, size - 1);
    to[held > 0 ? held : 0] = '\0';
    if (fd >= 0)
        close(fd);
}
