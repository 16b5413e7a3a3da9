/* SPDX-License-Identifier: Apache-2.0 */
#include "sampler/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MOST_SAMPLE 65536
#define MOST_FILE 65536
#define WHOLE 3072 /* the kernel gives as many whole lines as a page holds */

static char sample[MOST_SAMPLE];
static unsigned length;
static bool full;
static char text[MOST_FILE + 1];

void out_start(void) {
    length = 0;
    full = false;
}

void out_line(const char *format, ...) {
    va_list args;
    va_start(args, format);
    int written = full ? -1 : vsnprintf(sample + length, sizeof sample - length, format, args);
    va_end(args);
    if (written < 0 || (unsigned)written >= sizeof sample - length)
        full = true;
    else
        length += (unsigned)written;
}

/* Most of a sample is numbers, and the library's way of printing them is a long one. */
void out_number(uint64_t value) {
    char digits[24];
    unsigned at = sizeof digits;
    if (value == UNKNOWN)
        digits[--at] = '-';
    else
        do {
            digits[--at] = (char)('0' + value % 10);
            value /= 10;
        } while (value > 0);
    digits[--at] = ' ';
    if (full || sizeof digits - at >= sizeof sample - length) {
        full = true;
        return;
    }
    memcpy(sample + length, digits + at, sizeof digits - at);
    length += (unsigned)(sizeof digits - at);
}

bool out_write(void) {
    if (full) { /* what was cut off ends with its last whole line */
        while (length > 0 && sample[length - 1] != '\n')
            length--;
        full = false;
        if (length + 5 > sizeof sample)
            length = 0;
        out_line("cut\n");
    }
    for (unsigned at = 0; at < length;) {
        ssize_t written = write(1, sample + at, length - at);
        if (written < 0 && errno != EINTR)
            return false;
        if (written > 0)
            at += (unsigned)written;
    }
    return true;
}

static char *read_from_start(int fd) {
    size_t held = 0;
    while (held < MOST_FILE) {
        ssize_t got = pread(fd, text + held, MOST_FILE - held, (off_t)held);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return NULL;
        if (got == 0)
            break;
        held += (size_t)got;
        if (held < WHOLE && text[held - 1] == '\n')
            break; /* a short text comes whole: its end is not asked for */
    }
    text[held] = '\0';
    return text;
}

char *file_again(int *fd, int folder, const char *path) {
    if (*fd < 0)
        *fd = openat(folder, path, O_RDONLY | O_CLOEXEC);
    if (*fd < 0)
        return NULL;
    char *found = read_from_start(*fd);
    if (found == NULL) {
        close(*fd);
        *fd = -1;
    }
    return found;
}

char *file_once(int folder, const char *path) {
    int fd = openat(folder, path, O_RDONLY | O_CLOEXEC);
    char *found = fd >= 0 ? read_from_start(fd) : NULL;
    if (fd >= 0)
        close(fd);
    return found;
}

bool next_number(char **at, uint64_t *value) {
    char *here = *at;
    while (*here == ' ' || *here == '\t')
        here++;
    if (*here < '0' || *here > '9')
        return false;
    for (*value = 0; *here >= '0' && *here <= '9'; here++)
        *value = 10 * *value + (unsigned)(*here - '0');
    *at = here;
    return true;
}

uint64_t number_of(const char *from, const char *key) {
    size_t size = strlen(key);
    for (const char *line = from; line != NULL && *line != '\0'; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, size) == 0 && (line[size] == ' ' || line[size] == '\t')) {
            char *at = (char *)line + size;
            uint64_t value;
            return next_number(&at, &value) ? value : UNKNOWN;
        }
    }
    return UNKNOWN;
}

void plain_name(char *to, unsigned most, const char *from) {
    unsigned at = 0;
    for (; *from != '\0' && *from != '\n' && at + 1 < most; from++) {
        char c = *from;
        bool stays = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
                     c == '.' || c == '-' || c == ':' || c == '@';
        to[at++] = stays ? c : '?';
    }
    if (at == 0 && most > 1)
        to[at++] = '?';
    to[at] = '\0';
}
