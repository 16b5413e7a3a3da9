// SPDX-License-Identifier: GPL-2.0-or-later
#include "chunks.h"

#include "die.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct chunk {
    char tag[4];
    uint32_t count;
    uint64_t bytes; // of what follows
};

static FILE *file;
static const char *path;

void chunks_open(const char *to, const char magic[MAGIC_BYTES]) {
    path = to;
    file = strncmp(path, "fd:", 3) ? fopen(path, "wb") : fdopen(atoi(path + 3), "wb");
    if (!file)
        die("create %s: %s", path, strerror(errno));
    put(magic, MAGIC_BYTES);
}

void put(const void *data, size_t size) {
    if (size && fwrite(data, 1, size, file) != size)
        die("write %s: %s", path, strerror(errno));
}

void put_chunk(const char *tag, uint32_t count, uint64_t bytes) {
    struct chunk chunk = {.count = count, .bytes = bytes};
    memcpy(chunk.tag, tag, sizeof(chunk.tag));
    put(&chunk, sizeof(chunk));
}

void put_texts(const char *tag, char *const *texts, unsigned count) {
    size_t size = 0;
    for (unsigned i = 0; i < count; i++)
        size += strlen(texts[i]) + 1;
    put_chunk(tag, count, size);
    for (unsigned i = 0; i < count; i++)
        put(texts[i], strlen(texts[i]) + 1);
}

void put_owners(const struct config *config) {
    char *names[MAX_OWNERS];
    for (unsigned i = 0; i < config->owner_count; i++)
        names[i] = config->owners[i].name;
    put_texts("OWNR", names, config->owner_count);
}

void put_points(const char *tag, const struct config *config, bool spans) {
    unsigned count = spans ? config->span_count : config->mark_count;
    char **names = calloc(count + 1, sizeof(*names));
    if (!names)
        die("out of memory for names");
    for (unsigned i = 0; i < config->point_count; i++)
        if (config->points[i].is_span == spans)
            names[config->points[i].number] = config->points[i].name;
    put_texts(tag, names, count);
    free(names);
}

void chunks_close(void) {
    put_chunk("END.", 0, 0);
    if (fclose(file))
        die("write %s: %s", path, strerror(errno));
}
