// SPDX-License-Identifier: Apache-2.0
#include "supervise/orders.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Noreturn void bad(const char *key, const char *why) {
    fprintf(stderr, "supervise: orders: '%.40s': %s\n", key, why);
    exit(64);
}

// A number at `*text`, and the blank behind it, where there is one.
static int64_t number(const char *key, char **text) {
    char *end;
    errno = 0;
    long long value = strtoll(*text, &end, 10);
    if (errno || end == *text || (*end && *end != ' ') || value < -1)
        bad(key, "not a number");
    *text = *end ? end + 1 : end;
    return value;
}

static uint64_t large(const char *key, char **text) {
    char *end;
    errno = 0;
    unsigned long long value = strtoull(*text, &end, 10);
    if (errno || end == *text || *end != ' ' || **text == '-')
        bad(key, "not a number");
    *text = end + 1;
    return value;
}

static struct file *add_file(struct program *program, const char *key, char **value, enum use use) {
    if (program->count == MOST_FILES)
        bad(key, "too many files");
    struct file *file = &program->files[program->count++];
    int64_t at = number(key, value);
    if (at > 1000 || (at >= 0 && at < 3))
        bad(key, "not a descriptor");
    *file = (struct file){.use = use, .number = (int)at, .opened = -1};
    return file;
}

// FD r|rw|copy DEVICE INODE SIZE MODIFIED CHANGED PATH
static void add_open(struct program *program, char *value) {
    struct file *file = add_file(program, "open", &value, USE_READ);
    size_t word = strcspn(value, " ");
    if (word == 2 && !strncmp(value, "rw", 2))
        file->use = USE_WRITE;
    else if (word == 4 && !strncmp(value, "copy", 4))
        file->use = USE_COPY;
    else if (word != 1 || value[0] != 'r')
        bad("open", "neither r nor rw nor copy");
    value += word + (value[word] == ' ');
    uint64_t *parts[] = {&file->known.device, &file->known.inode, &file->known.size, &file->known.modified_ns,
                         &file->known.changed_ns};
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
        *parts[i] = large("open", &value);
    file->path = value;
}

static void add(struct list *list, const char *key, char *item) {
    if (!list_add(list, item))
        bad(key, "no memory");
}

static bool set_number(struct orders *orders, const char *key, char *value) {
    const struct {
        const char *key;
        int64_t *number;
    } longs[] = {{"grace-ms", &orders->grace_ms},
                 {"start-ms", &orders->start_ms},
                 {"last-ms", &orders->last_ms},
                 {"flush-ms", &orders->flush_ms},
                 {"log-bytes", &orders->log_bytes},
                 {"log-files", &orders->log_files},
                 {"health-interval-ms", &orders->health_interval_ms},
                 {"health-timeout-ms", &orders->health_timeout_ms},
                 {"health-start-ms", &orders->health_start_ms},
                 {"health-retries", &orders->health_retries}};
    const struct {
        const char *key;
        int *number;
    } numbers[] = {{"memory", &orders->memory},
                   {"control", &orders->control},
                   {"line", &orders->line},
                   {"told", &orders->told},
                   {"stop-signal", &orders->stop_signal}};
    const struct {
        const char *key;
        bool *flag;
    } flags[] = {{"interactive", &orders->interactive},
                 {"terminal", &orders->terminal},
                 {"detached", &orders->detached},
                 {"awaits", &orders->awaits},
                 {"no-stdin", &orders->no_stdin},
                 {"no-stdout", &orders->no_stdout},
                 {"no-stderr", &orders->no_stderr},
                 {"builtins", &orders->builtins},
                 {"explain-always", &orders->explain_always}};
    for (size_t i = 0; i < sizeof(longs) / sizeof(*longs); i++)
        if (!strcmp(key, longs[i].key))
            return *longs[i].number = number(key, &value), true;
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
        if (!strcmp(key, numbers[i].key))
            return *numbers[i].number = (int)number(key, &value), true;
    for (size_t i = 0; i < sizeof(flags) / sizeof(*flags); i++)
        if (!strcmp(key, flags[i].key))
            return *flags[i].flag = number(key, &value) == 1, true;
    return false;
}

static bool set_text(struct orders *orders, const char *key, char *value) {
    const struct {
        const char *key;
        const char **text;
    } texts[] = {{"announce", &orders->announce}, {"start-print", &orders->start_print},
                 {"halted-cpu", &orders->cpu},    {"halted", &orders->halted},
                 {"state", &orders->state},       {"runtime", &orders->runtime},
                 {"restart", &orders->restart}};
    const struct {
        const char *key;
        struct list *list;
    } lists[] = {{"run", &orders->volume},
                 {"health", &orders->health},
                 {"explain", &orders->explain},
                 {"otherwise", &orders->otherwise}};
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
        if (!strcmp(key, texts[i].key))
            return *texts[i].text = value, true;
    for (size_t i = 0; i < sizeof(lists) / sizeof(*lists); i++)
        if (!strcmp(key, lists[i].key))
            return add(lists[i].list, key, value), true;
    return false;
}

static void set(struct orders *orders, struct program **program, const char *key, char *value) {
    if (!strcmp(key, "program")) { // "monitor", or one that runs beside it
        bool beside = strcmp(value, "monitor") != 0;
        if (beside && orders->count == MOST_PROGRAMS)
            bad(key, "too many programs");
        *program = &orders->programs[beside ? orders->count++ : 0];
    } else if (!strcmp(key, "arg")) {
        add(&(*program)->argv, key, value);
    } else if (!strcmp(key, "env")) {
        add(&(*program)->env, key, value);
    } else if (!strcmp(key, "open")) {
        add_open(*program, value);
    } else if (!strcmp(key, "inherit")) {
        struct file *file = add_file(*program, key, &value, USE_INHERIT);
        file->opened = file->number;
    } else if (!set_number(orders, key, value) && !set_text(orders, key, value)) {
        bad(key, "unknown");
    }
}

void orders_read(struct orders *orders, char *text, size_t length) {
    struct program *program = &orders->programs[0];
    *orders = (struct orders){.count = 1,
                              .stop_signal = 15,
                              .grace_ms = 10000,
                              .start_ms = 120000,
                              .last_ms = 15000,
                              .log_bytes = 10 << 20,

                              .log_files = 3,
                              .health_interval_ms = 30000,
                              .health_timeout_ms = 30000,
                              .health_retries = 3};
    if (length == 0 || text[length - 1] || strcmp(text, "vmtailor 1"))
        bad("", "not orders of this version");
    char *value;
    for (char *key = text + strlen(text) + 1; key < text + length; key = value + strlen(value) + 1) {
        value = strchr(key, ' ');
        if (!value)
            bad(key, "no value");
        *value++ = '\0';
        set(orders, &program, key, value);
    }
    if (orders->told == END_RECORD)
        bad("told", "that descriptor is the end's");
    for (size_t i = 0; i < orders->count; i++)
        if (!orders->programs[i].argv.count)
            bad("arg", "a program without a name");
}
