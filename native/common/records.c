/* SPDX-License-Identifier: Apache-2.0 */
#include "common/records.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

bool list_add(struct list *list, char *item) {
    /* Grows by doubling; room is always for the NULL at the end. */
    if ((list->count & (list->count + 1)) == 0) {
        char **items = realloc(list->items, (2 * list->count + 2) * sizeof *items);
        if (items == NULL)
            return false;
        list->items = items;
    }
    list->items[list->count++] = item;
    list->items[list->count] = NULL;
    return true;
}

char *list_get(const struct list *list, const char *name) {
    size_t length = strlen(name);
    for (size_t i = 0; i < list->count; i++)
        if (strncmp(list->items[i], name, length) == 0 && list->items[i][length] == '=')
            return list->items[i] + length + 1;
    return NULL;
}

bool list_put(struct list *list, char *assignment) {
    size_t length = strcspn(assignment, "=");
    for (size_t i = 0; i < list->count; i++)
        if (strncmp(list->items[i], assignment, length) == 0 && list->items[i][length] == '=') {
            list->items[i] = assignment;
            return true;
        }
    return list_add(list, assignment);
}

void settings_default(struct settings *settings) {
    memset(settings, 0, sizeof *settings);
    settings->cwd = "/";
    settings->user = "";
    settings->hostname = "vm";
    settings->stop_signal = 15;
    settings->stop_timeout_ms = 10000;
    settings->grace_ms = 1000;
    settings->ready_timeout_ms = 120000;
}

static void step_default(struct step *step, enum step_kind kind) {
    memset(step, 0, sizeof *step);
    step->kind = kind;
    step->method = "GET";
    step->path = "/";
    step->repeat = 1;
    step->timeout_ms = 60000;
    step->status = -1;
    step->exit_code = -1;
}

/* A decimal number from 0 to `most`, or -1. */
static int number(const char *text, int most) {
    if (*text < '0' || *text > '9')
        return -1;
    long value = 0;
    for (; *text >= '0' && *text <= '9'; text++) {
        value = 10 * value + (*text - '0');
        if (value > most)
            return -1;
    }
    return *text == '\0' ? (int)value : -1;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool read_key(uint8_t key[16], const char *text) {
    for (int i = 0; i < 16; i++) {
        int high = hex_digit(text[2 * i]);
        int low = high < 0 ? -1 : hex_digit(text[2 * i + 1]);
        if (low < 0)
            return false;
        key[i] = (uint8_t)(high << 4 | low);
    }
    return text[32] == '\0';
}

static enum step_kind kind_of(const char *name) {
    static const struct {
        const char *name;
        enum step_kind kind;
    } kinds[] = {{"http", STEP_HTTP}, {"tcp", STEP_TCP},       {"command", STEP_COMMAND},
                 {"exit", STEP_EXIT}, {"requests", STEP_LOAD}, {"commands", STEP_COMMANDS}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].name, name) == 0)
            return kinds[i].kind;
    return STEP_NONE;
}

struct reader {
    struct settings *settings;
    struct step *step; /* the one that ".key" records describe */
    bool argv_seen, trace_seen;
};

static const char *open_ready(struct reader *reader, const char *kind) {
    struct step *step = &reader->settings->ready;
    step_default(step, kind_of(kind));
    reader->step = step;
    reader->settings->exercise = true;
    bool known = step->kind != STEP_NONE && step->kind != STEP_LOAD && step->kind != STEP_COMMANDS;
    return known ? NULL : "unknown kind of ready";
}

static const char *open_step(struct reader *reader, const char *kind) {
    struct settings *settings = reader->settings;
    if (settings->steps == NULL)
        settings->steps = calloc(MAX_STEPS, sizeof *settings->steps);
    if (settings->steps == NULL)
        return "no memory";
    if (settings->step_count == MAX_STEPS)
        return "too many steps";
    struct step *step = &settings->steps[settings->step_count++];
    step_default(step, kind_of(kind));
    reader->step = step;
    return step->kind == STEP_NONE || step->kind == STEP_EXIT ? "unknown kind of step" : NULL;
}

static const char *set_number(int *target, const char *value, int most) {
    int read = number(value, most);
    if (read < 0)
        return "not a number in range";
    *target = read;
    return NULL;
}

static const char *set_step(struct step *step, const char *key, char *value) {
    if (step == NULL)
        return "no step is open";
    if (strcmp(key, "port") == 0)
        return set_number(&step->port, value, 65535);
    if (strcmp(key, "repeat") == 0)
        return set_number(&step->repeat, value, INT_MAX);
    if (strcmp(key, "timeout-ms") == 0)
        return set_number(&step->timeout_ms, value, INT_MAX);
    if (strcmp(key, "status") == 0)
        return set_number(&step->status, value, 999);
    if (strcmp(key, "exit") == 0)
        return set_number(&step->exit_code, value, 255);
    if (strcmp(key, "method") == 0)
        step->method = value;
    else if (strcmp(key, "path") == 0)
        step->path = value;
    else if (strcmp(key, "sha256") == 0)
        step->sha256 = value;
    else if (strcmp(key, "contains") == 0)
        step->contains = value;
    else if (strcmp(key, "arg") == 0)
        return list_add(&step->argv, value) ? NULL : "no memory";
    else
        return "unknown record of a step";
    return NULL;
}

static const char *set_flag(bool *target, const char *value) {
    int read = number(value, 1);
    if (read < 0)
        return "neither 0 nor 1";
    *target = read;
    return NULL;
}

static const char *set_list(struct list *list, bool *seen, char *value) {
    if (!*seen)
        list->count = 0;
    *seen = true;
    /* After a reset the array may be larger than the doubling rule believes: start a fresh one. */
    if (list->count == 0) {
        free(list->items);
        list->items = NULL;
    }
    return list_add(list, value) ? NULL : "no memory";
}

/* Where a record "+NAME" goes; behind all others, so that a run without any is read as ever. */
static const char *set_surroundings(struct settings *settings, const char *key, char *value) {
    if (settings->surroundings == NULL)
        settings->surroundings = calloc(1, sizeof *settings->surroundings);
    struct surroundings *more = settings->surroundings;
    if (more == NULL)
        return "no memory";
    const struct {
        const char *key;
        bool *flag;
        const char **text;
        struct list *list;
    } rows[] = {{"+read-only", &more->read_only, NULL, NULL},
                {"+no-new-privileges", &more->no_new_privileges, NULL, NULL},
                {"+shm", NULL, &more->shm, NULL},
                {"+domain", NULL, &more->domain, NULL},
                {"+oom", NULL, &more->oom, NULL},
                {"+layer", NULL, &more->layer, NULL},
                {"+rights", NULL, &more->rights, NULL},
                {"+host", NULL, NULL, &more->hosts},
                {"+resolver", NULL, NULL, &more->resolver},
                {"+group", NULL, NULL, &more->groups},
                {"+limit", NULL, NULL, &more->limits},
                {"+tmpfs", NULL, NULL, &more->tmpfs},
                {"+sysctl", NULL, NULL, &more->sysctls}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strcmp(rows[i].key, key) != 0)
            continue;
        if (rows[i].flag != NULL)
            return set_flag(rows[i].flag, value);
        if (rows[i].list != NULL)
            return list_add(rows[i].list, value) ? NULL : "no memory";
        *rows[i].text = value;
        return NULL;
    }
    return "unknown record";
}

static const char *set(struct reader *reader, const char *key, char *value) {
    struct settings *settings = reader->settings;
    const struct {
        const char *key;
        const char **text;
    } texts[] = {{"cwd", &settings->cwd},
                 {"user", &settings->user},
                 {"hostname", &settings->hostname},
                 {"net", &settings->net},
                 {"net6", &settings->net6}};
    const struct {
        const char *key;
        int *number;
        int most;
    } numbers[] = {{"stop", &settings->stop_signal, 64},
                   {"stop-timeout-ms", &settings->stop_timeout_ms, INT_MAX},
                   {"grace-ms", &settings->grace_ms, INT_MAX},
                   {"ready-timeout-ms", &settings->ready_timeout_ms, INT_MAX},
                   {"rows", &settings->rows, 65535},
                   {"cols", &settings->cols, 65535},
                   {"sample-ms", &settings->sample_ms, 86400000}};
    const struct {
        const char *key;
        bool *flag;
    } flags[] = {{"stdin", &settings->stdin_relay}, {"terminal", &settings->terminal},
                 {"hold", &settings->hold},         {"privileged", &settings->privileged},
                 {"pid-one", &settings->pid_one},   {"virtio-line", &settings->virtio_line}};

    if (key[0] == '.')
        return set_step(reader->step, key + 1, value);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (strcmp(texts[i].key, key) == 0) {
            *texts[i].text = value;
            return NULL;
        }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (strcmp(numbers[i].key, key) == 0)
            return set_number(numbers[i].number, value, numbers[i].most);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (strcmp(flags[i].key, key) == 0)
            return set_flag(flags[i].flag, value);
    if (strcmp(key, "arg") == 0)
        return set_list(&settings->argv, &reader->argv_seen, value);
    if (strcmp(key, "quiet") == 0)
        return list_add(&settings->quiet, value) ? NULL : "no memory";
    if (strcmp(key, "trace") == 0)
        return set_list(&settings->trace, &reader->trace_seen, value);
    if (strcmp(key, "env") == 0)
        return strchr(value, '=') == NULL ? "not NAME=value" : list_put(&settings->env, value) ? NULL : "no memory";
    if (strcmp(key, "mount-at") == 0)
        return list_add(&settings->mounts, value) ? NULL : "no memory";
    if (strcmp(key, "volume") == 0)
        return list_add(&settings->volumes, value) ? NULL : "no memory";
    if (strcmp(key, "key") == 0) {
        settings->key_text = value;
        return read_key(settings->key, value) ? NULL : "not 32 hexadecimal digits";
    }
    if (strcmp(key, "ready") == 0)
        return open_ready(reader, value);
    if (strcmp(key, "step") == 0)
        return open_step(reader, value);
    return key[0] == '+' ? set_surroundings(settings, key, value) : "unknown record";
}

const char *settings_read(struct settings *settings, char *text, size_t length) {
    struct reader reader = {.settings = settings};
    char *end = text + length;
    if (length == 0 || end[-1] != '\0')
        return "not ended by a NUL";
    if (strcmp(text, "vmtailor 1") != 0)
        return "not of this version";
    for (char *record = text + strlen(text) + 1; record < end; record += strlen(record) + 1) {
        char *space = strchr(record, ' ');
        if (space == NULL)
            return "a record without a value";
        *space = '\0';
        char *value = space + 1;
        const char *wrong = set(&reader, record, value);
        if (wrong != NULL)
            return wrong;
        record = value;
    }
    return NULL;
}
