// SPDX-License-Identifier: Apache-2.0
#include "supervise/state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MOST_LINE 16384 // bytes of a line in one record; a longer one goes on in the next, as with Docker
#define MOST_LOGS 9

static struct {
    int folder, file;
    int64_t size, most, files;
    struct bytes lines[2];
} logged = {.folder = -1, .file = -1};

uint64_t real_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void open_log(void) {
    struct stat what;
    logged.file = openat(logged.folder, "log", O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
    logged.size = logged.file >= 0 && fstat(logged.file, &what) == 0 ? what.st_size : 0;
}

bool state_open(struct state *state, const struct orders *orders) {
    *state = (struct state){.folder = -1, .status = "created", .health = orders->health.count ? "starting" : "none"};
    if (!orders->state)
        return true;
    state->folder = open(orders->state, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int lock = state->folder < 0 ? -1 : openat(state->folder, "alive", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (lock < 0) {
        fprintf(stderr, "vmtailor: %s: %s\n", orders->state, strerror(errno));
        exit(125);
    }
    // Who only looks whether it is held lets go at once.
    for (int tries = 0; flock(lock, LOCK_EX | LOCK_NB); tries++) {
        if (tries == 20)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    // Who removes a machine holds the lock while its record goes: nobody would find the machine that starts now.
    if (faccessat(state->folder, "machine.json", F_OK, AT_SYMLINK_NOFOLLOW)) {
        fprintf(stderr, "vmtailor: the machine was removed\n");
        exit(125);
    }
    logged.folder = state->folder;
    logged.most = orders->log_bytes;
    logged.files = orders->log_files < 1 ? 1 : orders->log_files > MOST_LOGS ? MOST_LOGS : orders->log_files;
    open_log();
    return true;
}

void state_place(const struct state *state, const char *runtime) {
    if (state->folder < 0)
        return;
    unlinkat(state->folder, "runtime.new", 0);
    if (symlinkat(runtime, state->folder, "runtime.new") == 0)
        renameat(state->folder, "runtime.new", state->folder, "runtime");
}

static void add(struct bytes *text, const char *key, const char *value) {
    bytes_add(text, key, strlen(key));
    bytes_add(text, " ", 1);
    bytes_add(text, value, strlen(value) + 1);
}

static void add_number(struct bytes *text, const char *key, uint64_t value) {
    char number[24];
    snprintf(number, sizeof(number), "%llu", (unsigned long long)value);
    add(text, key, number);
}

void state_records(const struct state *state, struct bytes *text) {
    bytes_add(text, "vmtailor 1", 11);
    add(text, "status", state->status);
    add_number(text, "pid", (uint64_t)getpid());
    add_number(text, "started-ns", state->started_ns);
    add_number(text, "finished-ns", state->finished_ns);
    add_number(text, "exit", (uint64_t)state->exit);
    add_number(text, "restarts", (uint64_t)state->restarts);
    add(text, "health", state->health);
    add(text, "error", state->error);
}

void state_save(const struct state *state) {
    struct bytes text = {0};
    if (state->folder < 0)
        return;
    state_records(state, &text);
    int file = openat(state->folder, "state.new", O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file >= 0 && write(file, bytes_first(&text), bytes_left(&text)) == (ssize_t)bytes_left(&text))
        renameat(state->folder, "state.new", state->folder, "state");
    if (file >= 0)
        close(file);
    bytes_free(&text);
}

// --- the log

static void rotate(void) {
    char from[16], to[16];
    close(logged.file);
    for (int64_t i = logged.files - 1; i > 0; i--) {
        snprintf(from, sizeof(from), i > 1 ? "log.%d" : "log", (int)i - 1);
        snprintf(to, sizeof(to), "log.%d", (int)i);
        renameat(logged.folder, from, logged.folder, to);
    }
    if (logged.files == 1)
        unlinkat(logged.folder, "log", 0);
    open_log();
}

// How many bytes at `text` are one character of UTF-8; 0: they are none.
static size_t character(const uint8_t *text, size_t length) {
    size_t size = text[0] < 0x80 ? 1 : text[0] >= 0xC2 && text[0] < 0xE0 ? 2 : text[0] < 0xF0 ? 3 : 4;
    if (size == 1)
        return 1;
    if (text[0] < 0xC2 || text[0] > 0xF4 || length < size)
        return 0;
    for (size_t i = 1; i < size; i++)
        if ((text[i] & 0xC0) != 0x80)
            return 0;
    // Longer than need be, half of a pair, or beyond the last one.
    bool wrong = (text[0] == 0xE0 && text[1] < 0xA0) || (text[0] == 0xED && text[1] > 0x9F) ||
                 (text[0] == 0xF0 && text[1] < 0x90) || (text[0] == 0xF4 && text[1] > 0x8F);
    return wrong ? 0 : size;
}

static void add_json(struct bytes *out, const uint8_t *text, size_t length) {
    char escape[8];
    size_t size;
    for (size_t at = 0; at < length; at += size ? size : 1) {
        size = character(text + at, length - at);
        uint8_t one = text[at];
        if (!size)
            bytes_add(out, "\\ufffd", 6);
        else if (one == '"' || one == '\\')
            bytes_add(out, (char[]){'\\', (char)one}, 2);
        else if (one == '\n')
            bytes_add(out, "\\n", 2);
        else if (one == '\r')
            bytes_add(out, "\\r", 2);
        else if (one == '\t')
            bytes_add(out, "\\t", 2);
        else if (one < 0x20 || one == 0x7F)
            bytes_add(out, escape, (size_t)snprintf(escape, sizeof(escape), "\\u%04x", one));
        else
            bytes_add(out, text + at, size);
    }
}

static void write_line(bool errors, const uint8_t *line, size_t length) {
    struct bytes out = {0};
    char tail[96], day[32];
    struct tm parts;
    uint64_t now = real_ns();
    time_t seconds = (time_t)(now / 1000000000u);
    gmtime_r(&seconds, &parts);
    strftime(day, sizeof(day), "%Y-%m-%dT%H:%M:%S", &parts);
    bytes_add(&out, "{\"log\":\"", 8);
    add_json(&out, line, length);
    int size = snprintf(tail, sizeof(tail), "\",\"stream\":\"%s\",\"time\":\"%s.%09uZ\"}\n",
                        errors ? "stderr" : "stdout", day, (unsigned)(now % 1000000000u));
    bytes_add(&out, tail, (size_t)size);
    if (logged.size > 0 && logged.size + (int64_t)bytes_left(&out) > logged.most)
        rotate();
    // A full disk loses lines of the log, and nothing else.
    ssize_t written = logged.file < 0 ? -1 : write(logged.file, bytes_first(&out), bytes_left(&out));
    logged.size += written > 0 ? written : 0;
    bytes_free(&out);
}

static void write_first(bool errors, size_t length) {
    struct bytes *held = &logged.lines[errors];
    write_line(errors, bytes_first(held), length);
    bytes_drop(held, length);
}

// The longest part, at most so long, that cuts no character.
static size_t whole(const uint8_t *text, size_t length) {
    size_t cut = length;
    for (int i = 0; i < 3 && cut > 1 && (text[cut] & 0xC0) == 0x80; i++)
        cut--;
    return cut;
}

void log_output(bool errors, const uint8_t *data, size_t length) {
    struct bytes *held = &logged.lines[errors];
    if (logged.folder < 0)
        return;
    bytes_add(held, data, length);
    while (bytes_left(held) > 0) {
        size_t most = bytes_left(held) < MOST_LINE ? bytes_left(held) : MOST_LINE;
        const uint8_t *end = memchr(bytes_first(held), '\n', most);
        if (end)
            write_first(errors, (size_t)(end - bytes_first(held)) + 1);
        else if (bytes_left(held) > MOST_LINE)
            write_first(errors, whole(bytes_first(held), MOST_LINE));
        else
            break;
    }
}

void log_flush(void) {
    for (int errors = 0; errors < 2; errors++)
        if (logged.folder >= 0 && bytes_left(&logged.lines[errors]) > 0)
            write_first(errors, bytes_left(&logged.lines[errors]));
}
