// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Which node of the tree runs. Instructions are noted for it whenever that changes, so that their sum is exact.
 *
 * A call makes a node below the caller's, and so does a jump to another function, which is then gone with the frame. An
 * exception is a call of the code that it hit; an interrupt has a tree of its own, and what it hit goes on behind it.
 */
#ifndef VT_GRAPH_H
#define VT_GRAPH_H

#include <stdbool.h>
#include <stdint.h>

// A block of the kernel's code.
struct place {
    uint64_t address;
    unsigned function, flags; // flags: of the function, where the block is its begin or it has many
    bool at_start;
};

void graph_prepare(uint64_t (*executed)(void));

// A block of the kernel is entered, whoever's code ran before.
void graph_block(const struct place *place);

// Code of a program, or of firmware, is entered.
void graph_user_block(unsigned owner);

// An address was pushed by a call at a slot of the stack, or popped by a return.
void graph_call(uint64_t slot);
void graph_return(uint64_t slot);

// An interrupt's return is about to be executed; `behind` is the address behind the instruction.
void graph_interrupt_return(uint64_t behind);

// Note all that was executed until now.
void graph_settle(void);

#endif
