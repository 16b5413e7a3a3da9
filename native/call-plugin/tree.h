// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The tree of calling contexts: a node is a function as it was called along one path. Its instructions are its own,
 * without those of its callees.
 */
#ifndef VT_TREE_H
#define VT_TREE_H

#include <stdint.h>

// The first nodes. Their `function` is no function's number.
enum root_node {
    NODE_ROOT = 0,       // what programs ask for, and what runs before there are any
    NODE_INTERRUPTS = 1, // interrupts, whatever they hit
    NODE_THREADS = 2,    // the kernel's threads
    NODE_OTHERS = 3,     // functions called along paths that there was no node for
    ROOT_NODES = 4,
};

struct node {
    uint32_t parent, function, last_child, depth, cells; // cells: the first one's number, or 0
};

// A node's figures for one share of the work (activities.h).
struct cell {
    uint32_t node, next; // next: of the node's, or 0
    uint32_t share, pad;
    uint64_t self, entered;
    uint64_t seen_self, seen_entered; // at the last mark
};

void tree_prepare(unsigned most_nodes);

// The node of a function that is called from a node (made when it is new).
uint32_t tree_child(uint32_t parent, uint32_t function);

struct node *tree_node(uint32_t number);
uint32_t tree_count(void);

// Add to the figures of a node for a share.
void tree_add(uint32_t node, uint32_t share, uint64_t self, uint64_t entered);

// All figures, numbered from 1 to below the count.
struct cell *tree_cell(uint32_t number);
uint32_t tree_cell_count(void);

// How many calls went to NODE_OTHERS' children for want of nodes.
uint64_t tree_cut(void);

#endif
