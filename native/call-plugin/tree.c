// SPDX-License-Identifier: GPL-2.0-or-later
#include "tree.h"

#include "tcg-plugin/die.h"

#include <stdlib.h>
#include <string.h>

#define NO_FUNCTION UINT32_MAX
#define MAX_CELLS (1u << 23)
#define MAX_DEPTH 1000u // of a function that calls itself: a stack has room for few more

static struct node *nodes;
static uint32_t used, room, most;
static uint32_t *table; // open addressing: node number, or 0, which is nobody's child
static size_t table_size;
static uint64_t cut;
static struct cell *cells;
static uint32_t cells_used = 1, cells_room;

static size_t slot_of(uint32_t parent, uint32_t function) {
    uint64_t hash = ((uint64_t)parent << 32 | function) * 0x9e3779b97f4a7c15u;
    size_t slot = (hash >> 20) & (table_size - 1);
    while (table[slot] && (nodes[table[slot]].parent != parent || nodes[table[slot]].function != function))
        slot = (slot + 1) & (table_size - 1);
    return slot;
}

static void grow_table(void) {
    table_size = table_size ? table_size * 2 : 1u << 16;
    free(table);
    table = calloc(table_size, sizeof(*table));
    if (!table)
        die("out of memory for the table of nodes");
    for (uint32_t i = ROOT_NODES; i < used; i++)
        table[slot_of(nodes[i].parent, nodes[i].function)] = i;
}

static uint32_t add(uint32_t parent, uint32_t function) {
    if (used == room) {
        room = room ? room * 2 : 1u << 15;
        nodes = realloc(nodes, room * sizeof(*nodes));
        if (!nodes)
            die("out of memory for %u nodes", room);
    }
    if ((size_t)used * 2 >= table_size)
        grow_table();
    nodes[used] = (struct node){.parent = parent, .function = function, .depth = used ? nodes[parent].depth + 1 : 0};
    if (function != NO_FUNCTION)
        table[slot_of(parent, function)] = used;
    return used++;
}

void tree_prepare(unsigned most_nodes) {
    most = most_nodes;
    for (unsigned i = 0; i < ROOT_NODES; i++)
        add(NODE_ROOT, NO_FUNCTION);
}

uint32_t tree_child(uint32_t parent, uint32_t function) {
    uint32_t last = nodes[parent].last_child, found;
    if (last && nodes[last].function == function)
        return last;
    found = table[slot_of(parent, function)];
    if (!found && parent != NODE_OTHERS && (used >= most || nodes[parent].depth >= MAX_DEPTH)) {
        cut++;
        return tree_child(NODE_OTHERS, function);
    }
    if (!found)
        found = add(parent, function);
    nodes[parent].last_child = found;
    return found;
}

struct node *tree_node(uint32_t number) {
    return &nodes[number];
}

uint32_t tree_count(void) {
    return used;
}

void tree_add(uint32_t node, uint32_t share, uint64_t self, uint64_t entered) {
    uint32_t at = nodes[node].cells, before = 0;
    while (at && cells[at].share != share) {
        before = at;
        at = cells[at].next;
    }
    if (at && before) { // what was asked for last is found first
        cells[before].next = cells[at].next;
        cells[at].next = nodes[node].cells;
        nodes[node].cells = at;
    }
    if (!at) {
        if (cells_used == MAX_CELLS)
            die("more than %u figures of nodes", MAX_CELLS);
        if (cells_used >= cells_room) {
            cells_room = cells_room ? cells_room * 2 : 1u << 15;
            cells = realloc(cells, cells_room * sizeof(*cells));
            if (!cells)
                die("out of memory for the figures of %u nodes", used);
        }
        at = cells_used++;
        cells[at] = (struct cell){.node = node, .share = share, .next = nodes[node].cells};
        nodes[node].cells = at;
    }
    cells[at].self += self;
    cells[at].entered += entered;
}

struct cell *tree_cell(uint32_t number) {
    return &cells[number];
}

uint32_t tree_cell_count(void) {
    return cells_used;
}

uint64_t tree_cut(void) {
    return cut;
}
