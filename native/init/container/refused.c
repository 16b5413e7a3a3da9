/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A container may run for weeks and be refused a million times. So what the tracer writes is taken in here, and each
 * kind of refused call is told once, with a number; then how often, whenever that has doubled, and at the end.
 */
#include "init/container/refused.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "common/large.h"
#include "init/base/serial_line.h"
#include "init/settings/settings.h"

#define KINDS 4096
#define NAME "refused"
#define LONGEST 1900 /* of a line: with name and numbers it fits a frame */

struct kind {
    uint64_t hash;
    uint32_t number, count, told;
};
LARGE struct kind refused_kinds[KINDS];
static uint32_t known;
static struct kind others; /* what there was no room for */
static uint64_t begin_us = UINT64_MAX;

bool refused_wanted(void) {
    return settings.quiet.count > 0;
}

void refused_begin(uint64_t real_ns) {
    begin_us = real_ns / 1000;
}

static void tell(struct kind *kind, const char *line, size_t length) {
    char text[LONGEST + 64];
    int head = snprintf(text, sizeof text, "%u %u%s", kind->number, kind->count, length > 0 ? " " : "");
    memcpy(text + head, line, length);
    text[(size_t)head + length] = '\n';
    line_file(NAME, text, (size_t)head + length + 1);
    kind->told = kind->count;
}

static void count(struct kind *kind) {
    if (kind->count < UINT32_MAX)
        kind->count++;
    if (kind->told > 0 && kind->count / 2 >= kind->told)
        tell(kind, "", 0);
}

/* The decimal number at `*at`, which is moved behind it. */
static uint64_t number(const char **at, const char *end) {
    uint64_t value = 0;
    while (*at < end && isdigit((unsigned char)**at) && value < UINT64_MAX / 16)
        value = 10 * value + (uint64_t)(*(*at)++ - '0');
    return value;
}

/* "57<name> 1795394883.510153 call(…": what stands behind the time, or NULL; `us`: the time. */
static const char *call_of(const char *line, const char *end, uint64_t *us) {
    const char *at = line;
    number(&at, end);
    if (at < end && *at == '<' && (at = memchr(at, '>', (size_t)(end - at))) != NULL)
        at++;
    while (at != NULL && at < end && *at == ' ')
        at++;
    if (at == NULL || at >= end || !isdigit((unsigned char)*at))
        return NULL;
    *us = number(&at, end) * 1000000;
    if (at < end && *at == '.') {
        at++;
        *us += number(&at, end);
    }
    return at < end && *at == ' ' ? at + 1 : NULL;
}

/* The error's name behind the last " = -1 ", its length in `length`; NULL where there is none. */
static const char *error_of(const char *call, const char *end, size_t *length) {
    static const char before[] = " = -1 E";
    const size_t size = sizeof before - 1;
    if ((size_t)(end - call) < size)
        return NULL;
    for (const char *at = end - size; at >= call; at--)
        if (memcmp(at, before, size) == 0) {
            const char *name = at + size - 1;
            for (*length = 0; name + *length < end && isupper((unsigned char)name[*length]);)
                ++*length;
            return name + *length == end || name[*length] == ' ' ? name : NULL;
        }
    return NULL;
}

static bool is_quiet(const char *error, size_t length) {
    for (size_t i = 0; i < settings.quiet.count; i++)
        if (strlen(settings.quiet.items[i]) == length && memcmp(settings.quiet.items[i], error, length) == 0)
            return true;
    return false;
}

/* A file that is not there is the kernel's doing only where the kernel makes the files. */
static bool is_of_kernel(const char *call, size_t length) {
    static const char *const places[] = {"/proc", "/sys", "/dev"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (memmem(call, length, places[i], strlen(places[i])) != NULL)
            return true;
    return false;
}

/* Of the call without what differs from time to time: descriptors, addresses, processes. FNV-1a. */
static uint64_t hash_of(const char *call, const char *end) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (const char *at = call; at < end;) {
        const char *next = at;
        bool own_number = at > call && (at[-1] == '(' || (at - call >= 6 && memcmp(at - 6, "/proc/", 6) == 0));
        while (next < end && isxdigit((unsigned char)*next))
            next++;
        if (next > at && isdigit((unsigned char)*at) && (own_number || next - at > 5))
            at = next;
        else
            hash = (hash ^ (unsigned char)*at++) * 0x100000001b3u;
    }
    return hash != 0 ? hash : 1;
}

static struct kind *place_of(uint64_t hash) {
    for (size_t i = 0, slot = hash % KINDS; i < KINDS; i++, slot = (slot + 1) % KINDS)
        if (refused_kinds[slot].hash == hash || refused_kinds[slot].hash == 0)
            return &refused_kinds[slot];
    return NULL;
}

void refused_line(const char *line, size_t length) {
    const char *end = line + length;
    uint64_t us;
    size_t error_length;
    const char *call = call_of(line, end, &us);
    const char *error = call != NULL && us >= begin_us ? error_of(call, end, &error_length) : NULL;
    if (error == NULL || is_quiet(error, error_length))
        return;
    if (error_length == 6 && memcmp(error, "ENOENT", 6) == 0 && !is_of_kernel(call, (size_t)(end - call)))
        return;
    uint64_t hash = hash_of(call, end);
    struct kind *kind = length <= LONGEST ? place_of(hash) : NULL;
    if (kind != NULL && kind->hash == hash) {
        count(kind);
    } else if (kind == NULL || known >= KINDS - KINDS / 8) {
        count(&others);
        if (others.told == 0)
            tell(&others, "", 0);
    } else {
        *kind = (struct kind){.hash = hash, .number = ++known, .count = 1};
        tell(kind, line, length);
    }
}

void refused_close(void) {
    for (size_t i = 0; i < KINDS; i++)
        if (refused_kinds[i].count > refused_kinds[i].told)
            tell(&refused_kinds[i], "", 0);
    if (others.count > others.told)
        tell(&others, "", 0);
    if (refused_wanted())
        line_file(NAME, "end\n", 4);
}
