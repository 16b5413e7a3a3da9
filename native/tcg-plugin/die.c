// SPDX-License-Identifier: GPL-2.0-or-later
#include "die.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

void die(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("vtplugin: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    _exit(74); // EX_IOERR; _exit, because QEMU's own exit handlers would call the plugin again
}
