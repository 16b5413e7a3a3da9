// SPDX-License-Identifier: GPL-2.0-or-later
#include "writer.h"

#include "activities.h"
#include "tcg-plugin/chunks.h"
#include "tree.h"

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

static uint32_t nodes_written;

void writer_open(const char *to, const struct config *config) {
    chunks_open(to, "VTCALLS1");
    put_owners(config);
    put_points("MRKN", config, false);
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
    chunks_close();
}
