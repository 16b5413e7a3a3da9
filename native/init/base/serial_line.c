/* SPDX-License-Identifier: Apache-2.0 */
/* The serial line: everything we say to the host is a frame on it. */
#include "init/base/serial_line.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/klog.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <termios.h>
#include <unistd.h>

#define KLOG_READ_ALL 3
#define KLOG_CONSOLE_OFF 6

static int line = -1;
static uint8_t key[WIRE_KEY];
static uint8_t sequence;

void line_take(int fd) {
    line = fd;
    struct termios mode;
    if (tcgetattr(line, &mode) == 0) {
        cfmakeraw(&mode);
        mode.c_cflag |= CLOCAL | CREAD;
        mode.c_cc[VMIN] = 0; /* who else reads must not keep us waiting */
        tcsetattr(line, TCSANOW, &mode);
    }
}

void line_open(void) {
    /* The kernel opened /dev/console for us, which is the serial line. It has no node where the root has none. */
    line = -1;
    if (!isatty(0))
        return;
    line_take(fcntl(0, F_DUPFD_CLOEXEC, 10));
    ioctl(line, TIOCEXCL); /* nobody else opens it who may not administer the machine: neither to write nor to read */
    /* From here on the kernel is silent on this line (but for a panic): its log is sent at the end. */
    klogctl(KLOG_CONSOLE_OFF, NULL, 0);
}

int line_fd(void) {
    return line;
}

void line_key(const uint8_t new_key[WIRE_KEY]) {
    memcpy(key, new_key, WIRE_KEY);
}

static void write_all(const uint8_t *data, size_t length) {
    while (length > 0) {
        ssize_t written = write(line < 0 ? 2 : line, data, length);
        if (written < 0 && errno != EINTR)
            return;
        if (written > 0) {
            data += written;
            length -= (size_t)written;
        }
    }
}

void line_send(char type, const void *payload, size_t length) {
    const uint8_t *from = payload;
    do {
        uint8_t frame[WIRE_HEADER + WIRE_PAYLOAD];
        size_t part = length < WIRE_PAYLOAD ? length : WIRE_PAYLOAD;
        write_all(frame, wire_encode(frame, key, type, sequence++, from, part));
        from += part;
        length -= part;
    } while (length > 0);
}

static void send_formatted(char type, const char *prefix, const char *format, va_list args) {
    char text[1024];
    size_t held = 0;
    if (prefix != NULL) {
        held = (size_t)snprintf(text, 64, "%s", prefix) + 1;
        if (held > 64)
            held = 64;
    }
    int length = vsnprintf(text + held, sizeof text - held, format, args);
    if (length < 0)
        length = 0;
    size_t total = held + (size_t)length;
    line_send(type, text, total < sizeof text ? total : sizeof text - 1);
}

void line_text(char type, const char *format, ...) {
    va_list args;
    va_start(args, format);
    send_formatted(type, NULL, format, args);
    va_end(args);
}

void line_mark(const char *name, struct stamp stamp) {
    line_text(WIRE_MARK, "%s %llu %llu %llu", name, (unsigned long long)stamp.cycles, (unsigned long long)stamp.mono_ns,
              (unsigned long long)stamp.real_ns);
}

void line_note(const char *symbol, const char *format, ...) {
    va_list args;
    va_start(args, format);
    send_formatted(WIRE_NOTE, symbol, format, args);
    va_end(args);
}

void line_file(const char *name, const void *data, size_t length) {
    const char *from = data;
    do {
        char payload[WIRE_PAYLOAD];
        size_t held = (size_t)snprintf(payload, 64, "%s", name) + 1;
        size_t part = length < sizeof payload - held ? length : sizeof payload - held;
        memcpy(payload + held, from, part);
        line_send(WIRE_FILE, payload, held + part);
        from += part;
        length -= part;
    } while (length > 0);
}

static void send_kernel_log(void) {
    static char log[256 * 1024];
    int length = klogctl(KLOG_READ_ALL, log, sizeof log);
    if (length > 0)
        line_file("kernel-log", log, (size_t)length);
    else if (length < 0 && errno == ENOSYS)
        line_file("no-kernel-log", "", 0);
}

void line_drain(void) {
    send_kernel_log();
    if (line >= 0)
        tcdrain(line);
}

void line_fatal(const char *symbol, const char *format, va_list args) {
    send_formatted(WIRE_FATAL, symbol, format, args);
}
