// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The translated blocks that keep records of their own: all of the firmware and of the kernel. A block that QEMU
 * translates again, unchanged, keeps its record; other code at the same address gets another one.
 */
#ifndef VT_BLOCKS_H
#define VT_BLOCKS_H

#include "qemu_api.h"

#define MAX_INSN_BYTES 15u

enum block_class { CLASS_EARLY = 0, CLASS_KERNEL = 1 };

struct block {
    uint64_t vaddr, hash;
    uint16_t ports;                    // instructions that access ports
    uint32_t insns, bytes, lengths_at; // lengths_at: where its instructions' lengths begin in block_lengths
    enum block_class class;
    unsigned entries, executed;           // counters
    uint64_t seen_entries, seen_executed; // their values at the last mark
};

// The number of the record for a block of translated code (made when it is new).
unsigned block_of(struct qemu_plugin_tb *tb, enum block_class class);

struct block *block_at(unsigned number);
unsigned block_count(void);

// The lengths in bytes of all instructions of all blocks.
const uint8_t *block_lengths(size_t *count);

// The address behind a block's last instruction, and whether an address lies in the block.
uint64_t block_end(const struct qemu_plugin_tb *tb);
bool block_holds(const struct qemu_plugin_tb *tb, uint64_t address);

// Copy an instruction's bytes; returns how many.
size_t insn_bytes(const struct qemu_plugin_insn *insn, uint8_t to[MAX_INSN_BYTES]);

#endif
