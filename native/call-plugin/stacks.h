// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Where each call goes on when it returns, by the address of the stack at which the return address lies. Whatever task
 * a stack belongs to, and whoever runs meanwhile: an address says it.
 */
#ifndef VT_STACKS_H
#define VT_STACKS_H

#include <stdbool.h>
#include <stdint.h>

// What runs: a node of the tree; the first node of its frame, which is above it after jumps to other functions; the
// work that it belongs to (activities.h); the interruption that it is part of, or 0.
struct state {
    uint32_t node, base, activity, interruption;
    bool soft;       // within deferred work of interrupts
    bool unresolved; // a call was made, whose function is known by the next block
};

void stacks_prepare(uint64_t stack_bytes);

// A return address was pushed at `slot`; whatever lies below it in its stack is gone.
void stack_push(uint64_t slot, const struct state *caller);

// A return address was popped at `slot`. Returns false, and leaves `caller` alone, when nobody pushed it.
bool stack_pop(uint64_t slot, struct state *caller);

#endif
