// SPDX-License-Identifier: GPL-2.0-or-later
#include "writer.h"

#include "activities.h"
#include "tcg-plugin/die.h"
#include "tree.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct chunk {
    char tag[4];
    uint32_t count;
    uint64_t bytes; // of what follows
};

struct node_row {
    uint32_t parent, function;
};

struct step_row {
    int64_t mark;
    struct executed now;
};

struct count_row {
    uint32_t node, purpose;
    uint64_t self, entered;
};

static FILE *file;
static const char *path;
static uint32_t nodes_written;

static void put(const void *data, size_t size) {
    if (size && fwrite(data, 1, size, file) != size)
        die("write %s: %s", path, strerror(errno));
}

static void put_chunk(const char *tag, uint32_t count, uint64_t bytes) {
    struct chunk chunk = {.count = count, .bytes = bytes};
    memcpy(chunk.tag, tag, sizeof(chunk.tag));
    put(&chunk, sizeof(chunk));
}

static void put_names(const char *tag, char *const *names, unsigned count) {
    size_t size = 0;
    for (unsigned i = 0; i < count; i++)
        size += strlen(names[i]) + 1;
    put_chunk(tag, count, size);
    for (unsigned i = 0; i < count; i++)
        put(names[i], strlen(names[i]) + 1);
}

void writer_open(const char *to, const struct config *config) {
    char *owners[MAX_OWNERS], **marks = calloc(config->mark_count + 1, sizeof(*marks));
    path = to;
    // A QEMU that may open nothing inherits the file: "fd:NUMBER".
    file = strncmp(path, "fd:", 3) ? fopen(path, "wb") : fdopen(atoi(path + 3), "wb");
    if (!file)
        die("create %s: %s", path, strerror(errno));
    if (!marks)
        die("out of memory for names");
    for (unsigned i = 0; i < config->owner_count; i++)
        owners[i] = config->owners[i].name;
    for (unsigned i = 0; i < config->point_count; i++)
        if (!config->points[i].is_span)
            marks[config->points[i].number] = config->points[i].name;
    put("VTCALLS1", 8);
    put_names("OWNR", owners, config->owner_count);
    put_names("MRKN", marks, config->mark_count);
    free(marks);
}

static void put_new_nodes(void) {
    uint32_t count = tree_count();
    put_chunk("NODE", count - nodes_written, (uint64_t)(count - nodes_written) * sizeof(struct node_row));
    for (; nodes_written < count; nodes_written++) {
        const struct node *node = tree_node(nodes_written);
        struct node_row row = {node->parent, node->function};
        put(&row, sizeof(row));
    }
}

static bool changed(const struct cell *cell) {
    return cell->self != cell->seen_self || cell->entered != cell->seen_entered;
}

static void put_counts(void) {
    uint32_t rows = 0;
    for (uint32_t i = 1; i < tree_cell_count(); i++)
        rows += changed(tree_cell(i));
    put_chunk("CONT", rows, (uint64_t)rows * sizeof(struct count_row));
    for (uint32_t i = 1; i < tree_cell_count(); i++) {
        struct cell *cell = tree_cell(i);
        struct count_row row = {cell->node, cell->share, 0, 0};
        if (!changed(cell))
            continue;
        row.self = cell->self - cell->seen_self;
        row.entered = cell->entered - cell->seen_entered;
        put(&row, sizeof(row));
        cell->seen_self = cell->self;
        cell->seen_entered = cell->entered;
    }
}

void writer_stretch(int mark, const struct executed *now, const uint64_t *users, unsigned user_count) {
    struct step_row step = {mark, *now};
    const struct work_row *works;
    const struct case_row *cases;
    uint32_t work_count = activities_work_rows(&works), case_count = activities_case_rows(&cases);
    put_new_nodes();
    put_chunk("STEP", 1, sizeof(step));
    put(&step, sizeof(step));
    put_chunk("USER", user_count, user_count * sizeof(*users));
    put(users, user_count * sizeof(*users));
    put_chunk("WORK", work_count, (uint64_t)work_count * sizeof(*works));
    put(works, work_count * sizeof(*works));
    put_chunk("CASE", case_count, (uint64_t)case_count * sizeof(*cases));
    put(cases, case_count * sizeof(*cases));
    put_counts();
    activities_begin_anew();
}

void writer_close(void) {
    uint64_t limits[] = {tree_cut(), activities_rounded()};
    put_chunk("CUT.", 2, sizeof(limits));
    put(limits, sizeof(limits));
    put_chunk("END.", 0, 0);
    if (fclose(file))
        die("write %s: %s", path, strerror(errno));
}
