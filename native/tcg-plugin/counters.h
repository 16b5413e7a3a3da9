// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Counters that translated code adds to. They live in slabs that never move, since QEMU keeps their addresses in the
 * code it generates; interface 4 wants them inside its own "scoreboards", interface 1 takes plain memory.
 */
#ifndef VT_COUNTERS_H
#define VT_COUNTERS_H

#include "qemu_api.h"

// A new counter at zero, counted from 0. Ends QEMU when memory is out.
unsigned counter_new(void);

// Its value just now.
uint64_t counter_value(unsigned counter);

// Add a number to a counter whenever a block is entered, or just before an instruction executes.
void counter_add_at_block(unsigned counter, struct qemu_plugin_tb *tb, uint64_t add);
void counter_add_at_insn(unsigned counter, struct qemu_plugin_insn *insn, uint64_t add);

#endif
