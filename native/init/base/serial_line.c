/* SPDX-License-Identifier: Apache-2.0 */
/* The line to the host: everything we say to it is a frame on it. Under KVM each byte on a serial line leaves the
 * guest, and on a virtio port each write. */
#include "init/base/serial_line.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/klog.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/large.h"
#include "init/base/plain_line.h"

#define KLOG_READ_ALL 3
#define KLOG_CONSOLE_OFF 6
#define HOLD_NS 100000000u /* the longest that a frame waits */
#define HEAD 3             /* bytes before a payload that waits: type, length */
#define MOST_HELD 1024
#define MOST_MARKS 512
#define MOST_MARK 96 /* bytes of one mark's line */
/* Output that the host has not taken: what of it waits for the host lies in the kernel's memory. */
#define MOST_AHEAD (256 * 1024)
/* The kernel copies each write to a port into pages that lie together; eight of them a small machine may not have. */
#define MOST_WRITE 8192
#define LEAST_WRITE 1024

static int line = -1;
static bool port;
static bool plain; /* nobody is there who reads frames */
static size_t ahead;
static uint8_t key[WIRE_KEY];
static uint8_t sequence;

/* What waits: frames that have no sequence and tag yet, and the marks, which become one frame. */
static bool holds;
static uint64_t due = UINT64_MAX;
static uint8_t held[MOST_HELD];
static char marks[MOST_MARKS];
static size_t held_length, marks_length;
static struct stamp last_mark;
/* What is written at once: all that waits, and a frame behind it. */
static uint8_t
    block[WIRE_HEADER * (MOST_HELD / HEAD) + MOST_HELD + WIRE_HEADER + MOST_MARKS + WIRE_HEADER + WIRE_PAYLOAD];

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
    plain = plain_line_asked();
    if (!isatty(0))
        return;
    if (plain)
        line = plain_line_open();
    else
        line_take(fcntl(0, F_DUPFD_CLOEXEC, 10));
    ioctl(line, TIOCEXCL); /* nobody else opens it who may not administer the machine: neither to write nor to read */
    /* From here on the kernel is silent on this line (but for a panic): its log is sent at the end. */
    klogctl(KLOG_CONSOLE_OFF, NULL, 0);
}

void line_take_port(int fd) {
    line = fd;
    port = true;
}

bool line_is_port(void) {
    return port;
}

void line_taken(size_t bytes) {
    ahead -= bytes < ahead ? bytes : ahead;
}

bool line_is_full(void) {
    return port && ahead >= MOST_AHEAD;
}

int line_fd(void) {
    return line;
}

void line_key(const uint8_t new_key[WIRE_KEY]) {
    memcpy(key, new_key, WIRE_KEY);
}

/* The kernel copies what is written to a port. Where it has no memory for that, less of it is written, and later. */
static void write_port(const uint8_t *data, size_t length) {
    size_t most = MOST_WRITE;
    while (length > 0) {
        ssize_t written = write(line, data, length < most ? length : most);
        if (written > 0) {
            data += written;
            length -= (size_t)written;
        } else if (written < 0 && errno == ENOMEM) {
            most = most / 2 > LEAST_WRITE ? most / 2 : LEAST_WRITE;
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        } else if (written < 0 && errno == EAGAIN) {
            poll(&(struct pollfd){.fd = line, .events = POLLOUT}, 1, -1);
        } else if (written < 0 && errno != EINTR) {
            return;
        }
    }
}

static void write_all(const uint8_t *data, size_t length) {
    if (port) {
        write_port(data, length);
        return;
    }
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

static size_t add_frame(size_t at, char type, const void *payload, size_t length) {
    if (port) {
        memcpy(block + at + WIRE_HEADER, payload, length);
        return at + wire_port_head(block + at, key, type, sequence++, length) + length;
    }
    return at + wire_encode(block + at, key, type, sequence++, payload, length);
}

static size_t add_marks(size_t at) {
    uint64_t now = now_ns();
    if (marks_length == 0)
        return at;
    if (holds && now > last_mark.mono_ns)
        marks_length += (size_t)snprintf(marks + marks_length, sizeof marks - marks_length, "\n%llu",
                                         (unsigned long long)(now - last_mark.mono_ns) / 1000);
    return add_frame(at, WIRE_MARK, marks, marks_length);
}

/* Put all that waits into the block; returns its length. */
static size_t add_held(void) {
    size_t at = 0, length;
    for (size_t from = 0; from < held_length; from += HEAD + length) {
        length = held[from + 1] | (size_t)held[from + 2] << 8;
        at = add_frame(at, (char)held[from], held + from + HEAD, length);
    }
    at = add_marks(at);
    held_length = marks_length = 0;
    due = UINT64_MAX;
    return at;
}

void line_flush(void) {
    write_all(block, add_held());
}

void line_hold(void) {
    holds = true;
}

uint64_t line_advance(void) {
    if (due != UINT64_MAX && now_ns() >= due)
        line_flush();
    return due;
}

static void wait_for_others(void) {
    if (due == UINT64_MAX)
        due = now_ns() + HOLD_NS;
}

static void hold(char type, const void *payload, size_t length) {
    if (held_length + HEAD + length > sizeof held)
        line_flush();
    uint8_t *to = held + held_length;
    to[0] = (uint8_t)type;
    to[1] = (uint8_t)length;
    to[2] = (uint8_t)(length >> 8);
    memcpy(to + HEAD, payload, length);
    held_length += HEAD + length;
    wait_for_others();
}

void line_send(char type, const void *payload, size_t length) {
    const uint8_t *from = payload;
    if (plain) {
        plain_line_say(line < 0 ? 2 : line, type, payload, length);
        return;
    }
    if (holds && type == WIRE_NOTE && HEAD + length <= sizeof held) {
        hold(type, payload, length);
        return;
    }
    /* What the container says overtakes what we say about it. */
    bool stream = type == WIRE_STDOUT || type == WIRE_STDERR;
    size_t at = stream ? 0 : add_held(), most = port ? WIRE_BLOCK : WIRE_PAYLOAD;
    if (stream && port)
        ahead += length;
    do {
        size_t part = length < most ? length : most;
        if (part <= WIRE_PAYLOAD) {
            write_all(block, add_frame(at, type, from, part));
        } else {
            write_all(block, at + wire_port_head(block + at, key, type, sequence++, part));
            write_all(from, part);
        }
        from += part;
        length -= part;
        at = 0;
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

/* The first mark of a frame, or how much more the next one is. Its last number is left out where it is no other. */
static int print_mark(char *to, const char *name, struct stamp stamp, const struct stamp *before) {
    static const struct stamp none;
    const struct stamp *since = before != NULL ? before : &none;
    unsigned long long cycles = stamp.cycles - since->cycles;
    unsigned long long mono = stamp.mono_ns - since->mono_ns, real = stamp.real_ns - since->real_ns;
    const char *end = before != NULL ? "\n" : "";
    if (mono == real)
        return snprintf(to, MOST_MARK, "%s%s %llu %llu", end, name, cycles, mono);
    return snprintf(to, MOST_MARK, "%s%s %llu %llu %llu", end, name, cycles, mono, real);
}

static bool is_earlier(struct stamp a, struct stamp b) {
    return a.cycles < b.cycles || a.mono_ns < b.mono_ns || a.real_ns < b.real_ns;
}

void line_mark(const char *name, struct stamp stamp) {
    if (plain)
        return;
    if (marks_length > 0 && (is_earlier(stamp, last_mark) || marks_length + 2 * MOST_MARK > sizeof marks))
        line_flush();
    marks_length += (size_t)print_mark(marks + marks_length, name, stamp, marks_length > 0 ? &last_mark : NULL);
    last_mark = stamp;
    if (holds)
        wait_for_others();
    else
        line_flush();
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

LARGE char line_kernel_log[256 * 1024];

static void send_kernel_log(void) {
    int length = klogctl(KLOG_READ_ALL, line_kernel_log, sizeof line_kernel_log);
    if (length > 0)
        line_file("kernel-log", line_kernel_log, (size_t)length);
    else if (length < 0 && errno == ENOSYS)
        line_file("no-kernel-log", "", 0);
}

void line_drain(void) {
    if (!plain)
        send_kernel_log();
    line_flush();
    if (line >= 0 && !port)
        tcdrain(line);
}

void line_fatal(const char *symbol, const char *format, va_list args) {
    send_formatted(WIRE_FATAL, symbol, format, args);
}
