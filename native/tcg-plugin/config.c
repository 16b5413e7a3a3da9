// SPDX-License-Identifier: GPL-2.0-or-later
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_WORDS 5

static char message[512];

static bool parse_address(const char *word, uint64_t *address) {
    char *end;
    errno = 0;
    *address = strtoull(word, &end, 16);
    return !errno && end != word && !*end && word[0] != '-';
}

static const char *add_owner(struct config *config, char **words, unsigned count) {
    struct owner *owner = &config->owners[config->owner_count];
    if (count != 4 || config->owner_count == MAX_OWNERS)
        return "owner NAME START END, at most 14 of them";
    if (!parse_address(words[2], &owner->start) || !parse_address(words[3], &owner->end) || owner->start >= owner->end)
        return "bad address range";
    owner->name = strdup(words[1]);
    config->owner_count++;
    return owner->name ? NULL : "out of memory";
}

static const char *add_point(struct config *config, char **words, unsigned count, bool is_span) {
    struct point point = {.is_span = is_span, .every = is_span};
    unsigned next = 3;
    if (count > next && !is_span && (!strcmp(words[next], "once") || !strcmp(words[next], "every")))
        point.every = !strcmp(words[next++], "every");
    if (count > next && (!strcmp(words[next], "host") || !strcmp(words[next], "guest")))
        point.in_guest = !strcmp(words[next++], "guest");
    if (count < 3 || next != count)
        return "mark NAME ADDRESS [once|every] [host|guest], span NAME ADDRESS [host|guest]";
    point.at_entry = !strcmp(words[2], "entry");
    if (!point.at_entry && !parse_address(words[2], &point.address))
        return "bad address";
    struct point *grown = realloc(config->points, (config->point_count + 1) * sizeof(*grown));
    point.name = strdup(words[1]);
    if (!grown || !point.name)
        return "out of memory";
    point.number = is_span ? config->span_count++ : config->mark_count++;
    config->points = grown;
    config->points[config->point_count++] = point;
    return NULL;
}

static const char *add_switch(char **words, unsigned count, const char *on, const char *off, bool *value) {
    if (count != 2 || (strcmp(words[1], on) && strcmp(words[1], off)))
        return "unknown value";
    *value = !strcmp(words[1], on);
    return NULL;
}

static const char *add_opcode(struct opcodes *opcodes, char **words, unsigned count) {
    struct opcode *opcode = &opcodes->rows[opcodes->count];
    uint64_t value, mask;
    if (count < 3 || count > 4 || (count == 4 && strcmp(words[3], "half")) || opcodes->count == MAX_OPCODES)
        return "prefix|port VALUE MASK [half], at most 32 of each";
    if (!parse_address(words[1], &value) || !parse_address(words[2], &mask) || value > 0xff || mask > 0xff)
        return "bad byte";
    *opcode = (struct opcode){(uint8_t)value, (uint8_t)mask, count == 4};
    opcodes->count++;
    return NULL;
}

static const char *add_page(struct config *config, char **words, unsigned count) {
    if (count != 2 || config->page_count == MAX_PAGES || !parse_address(words[1], &config->pages[config->page_count]))
        return "at-once ADDRESS, at most 16 of them";
    config->page_count++;
    return NULL;
}

static const char *add_firmware(struct config *config, char **words, unsigned count) {
    if (count != 3 || config->firmware_end)
        return "firmware START END, once";
    if (!parse_address(words[1], &config->firmware) || !parse_address(words[2], &config->firmware_end) ||
        config->firmware >= config->firmware_end)
        return "bad address range";
    return NULL;
}

static const char *add_guest_entry(struct config *config, char **words, unsigned count) {
    const char *digits = count == 2 ? words[1] : "";
    size_t size = strlen(digits) / 2;
    if (!size || strlen(digits) % 2 || size > MAX_ENTRY_BYTES || config->guest_entry_size)
        return "guest-entry BYTES, at most 8 of them, once";
    for (size_t i = 0; i < size; i++) {
        char byte[] = {digits[2 * i], digits[2 * i + 1], '\0'};
        if (strspn(byte, "0123456789abcdef") != 2)
            return "bad bytes";
        config->guest_entry[i] = (uint8_t)strtoul(byte, NULL, 16);
    }
    config->guest_entry_size = (unsigned)size;
    return NULL;
}

static const char *add_name(char **words, unsigned count, char **name) {
    if (count != 2 || *name)
        return "one name";
    *name = strdup(words[1]);
    return *name ? NULL : "out of memory";
}

static const char *about_processor(struct config *config, char **words, unsigned count) {
    if (!strcmp(words[0], "architecture"))
        return add_name(words, count, &config->architecture);
    if (!strcmp(words[0], "target"))
        return add_name(words, count, &config->target);
    if (!strcmp(words[0], "half"))
        return count == 2 && parse_address(words[1], &config->half) ? NULL : "half ADDRESS";
    if (!strcmp(words[0], "prefix"))
        return add_opcode(&config->prefixes, words, count);
    if (!strcmp(words[0], "port"))
        return add_opcode(&config->ports, words, count);
    if (!strcmp(words[0], "firmware"))
        return add_firmware(config, words, count);
    if (!strcmp(words[0], "guest-entry"))
        return add_guest_entry(config, words, count);
    if (!strcmp(words[0], "at-once"))
        return add_page(config, words, count);
    return "unknown statement";
}

static const char *add_mode(struct config *config, char **words, unsigned count) {
    config->settle_only = count == 2 && !strcmp(words[1], "settle");
    if (!config->settle_only)
        return add_switch(words, count, "counts", "coverage", &config->exact);
    config->exact = false;
    return NULL;
}

static const char *statement(struct config *config, char **words, unsigned count) {
    if (!strcmp(words[0], "mode"))
        return add_mode(config, words, count);
    if (!strcmp(words[0], "devices"))
        return add_switch(words, count, "on", "off", &config->devices);
    if (!strcmp(words[0], "kernel"))
        return count == 2 && parse_address(words[1], &config->kernel) ? NULL : "kernel ADDRESS";
    if (!strcmp(words[0], "guest-kernel"))
        return count == 2 && parse_address(words[1], &config->guest_kernel) ? NULL : "guest-kernel ADDRESS";
    if (!strcmp(words[0], "owner"))
        return add_owner(config, words, count);
    if (!strcmp(words[0], "mark") || !strcmp(words[0], "span"))
        return add_point(config, words, count, words[0][0] == 's');
    return about_processor(config, words, count);
}

static int by_address(const void *left, const void *right) {
    const struct point *a = left, *b = right;
    if (a->address != b->address)
        return a->address < b->address ? -1 : 1;
    if (a->is_span != b->is_span)
        return a->is_span ? 1 : -1;
    return a->number < b->number ? -1 : a->number > b->number;
}

const char *config_read(struct config *config, const char *path) {
    char line[1024];
    unsigned line_number = 0;
    const char *wrong = NULL;
    *config = (struct config){.exact = true, .devices = true, .owner_count = 2};
    config->owners[OWNER_BOOT].name = "boot";
    config->owners[OWNER_OTHER].name = "other";
    FILE *file = fopen(path, "r");
    if (!file) {
        snprintf(message, sizeof(message), "open %s: %s", path, strerror(errno));
        return message;
    }
    while (!wrong && fgets(line, sizeof(line), file)) {
        char *words[MAX_WORDS], *rest = NULL;
        unsigned count = 0;
        line_number++;
        line[strcspn(line, "#")] = '\0';
        for (char *word = strtok_r(line, " \t\r\n", &rest); word; word = strtok_r(NULL, " \t\r\n", &rest))
            if (count < MAX_WORDS)
                words[count++] = word;
        if (count)
            wrong = statement(config, words, count);
    }
    if (!wrong && ferror(file))
        wrong = strerror(errno);
    fclose(file);
    if (wrong) {
        snprintf(message, sizeof(message), "%s, line %u: %s", path, line_number, wrong);
        return message;
    }
    if (!config->architecture || !config->target || !config->half) {
        snprintf(message, sizeof(message), "%s: architecture, target and half must be said", path);
        return message;
    }
    for (unsigned i = 0; i < config->point_count && !config->guest_entry_size; i++)
        if (config->points[i].in_guest || config->points[i].at_entry) {
            snprintf(message, sizeof(message), "%s: a point of a guest needs guest-entry", path);
            return message;
        }
    if (config->point_count)
        qsort(config->points, config->point_count, sizeof(*config->points), by_address);
    return NULL;
}

struct point *config_point_at(const struct config *config, uint64_t start, uint64_t end) {
    unsigned low = 0, high = config->point_count;
    while (low < high) {
        unsigned middle = (low + high) / 2;
        if (config->points[middle].address < start)
            low = middle + 1;
        else
            high = middle;
    }
    return low < config->point_count && config->points[low].address < end ? &config->points[low] : NULL;
}

unsigned config_owner_of(const struct config *config, uint64_t address) {
    for (unsigned i = OWNER_OTHER + 1; i < config->owner_count; i++)
        if (address >= config->owners[i].start && address < config->owners[i].end)
            return i;
    return OWNER_OTHER;
}

bool opcodes_hold(const struct opcodes *opcodes, uint8_t byte, bool in_half) {
    for (unsigned i = 0; i < opcodes->count; i++) {
        const struct opcode *opcode = &opcodes->rows[i];
        if ((byte & opcode->mask) == opcode->value && (in_half || !opcode->in_half))
            return true;
    }
    return false;
}
