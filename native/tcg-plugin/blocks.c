// SPDX-License-Identifier: GPL-2.0-or-later
#include "blocks.h"

#include "counters.h"
#include "die.h"

#include <stdlib.h>
#include <string.h>

static struct block *blocks;
static unsigned used, room;
static uint8_t *lengths;
static size_t lengths_used, lengths_room;
static uint32_t *table; // open addressing: block number + 1, or 0
static size_t table_size;

size_t insn_bytes(const struct qemu_plugin_insn *insn, uint8_t to[MAX_INSN_BYTES]) {
    size_t size = qemu_plugin_insn_size(insn);
    if (size > MAX_INSN_BYTES)
        size = MAX_INSN_BYTES;
#if VT_PLUGIN_API == 1
    memcpy(to, qemu_plugin_insn_data(insn), size);
    return size;
#else
    return qemu_plugin_insn_data(insn, to, size);
#endif
}

uint64_t block_end(const struct qemu_plugin_tb *tb) {
    struct qemu_plugin_insn *last = qemu_plugin_tb_get_insn(tb, qemu_plugin_tb_n_insns(tb) - 1);
    return qemu_plugin_insn_vaddr(last) + qemu_plugin_insn_size(last);
}

bool block_holds(const struct qemu_plugin_tb *tb, uint64_t address) {
    return address >= qemu_plugin_tb_vaddr(tb) && address < block_end(tb);
}

static void *grown(void *old, size_t count, size_t size) {
    void *larger = realloc(old, count * size);
    if (!larger)
        die("out of memory for %zu records", count);
    return larger;
}

// FNV-1a
static uint64_t hash_add(uint64_t hash, const uint8_t *data, size_t size) {
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ data[i]) * 0x100000001b3u;
    return hash;
}

static size_t slot_of(const struct block *wanted) {
    size_t slot = (wanted->hash ^ wanted->hash >> 32) & (table_size - 1);
    for (; table[slot]; slot = (slot + 1) & (table_size - 1)) {
        const struct block *at = &blocks[table[slot] - 1];
        if (at->hash == wanted->hash && at->vaddr == wanted->vaddr && at->insns == wanted->insns &&
            at->bytes == wanted->bytes && at->class == wanted->class)
            break;
    }
    return slot;
}

static void make_room(void) {
    if (used == room) {
        room = room ? room * 2 : 16384;
        blocks = grown(blocks, room, sizeof(*blocks));
    }
    if (used * 2 < table_size)
        return;
    table_size = table_size ? table_size * 2 : 65536;
    free(table);
    table = calloc(table_size, sizeof(*table));
    if (!table)
        die("out of memory for the table of blocks");
    for (unsigned i = 0; i < used; i++)
        table[slot_of(&blocks[i])] = i + 1;
}

static void keep_lengths(struct block *block, struct qemu_plugin_tb *tb) {
    if (lengths_used + block->insns > lengths_room) {
        lengths_room = (lengths_used + block->insns) * 2;
        lengths = grown(lengths, lengths_room, 1);
    }
    block->lengths_at = (uint32_t)lengths_used;
    for (size_t i = 0; i < block->insns; i++)
        lengths[lengths_used++] = (uint8_t)qemu_plugin_insn_size(qemu_plugin_tb_get_insn(tb, i));
}

unsigned block_of(struct qemu_plugin_tb *tb, enum block_class class) {
    struct block block = {.vaddr = qemu_plugin_tb_vaddr(tb), .insns = (uint32_t)qemu_plugin_tb_n_insns(tb)};
    uint8_t bytes[MAX_INSN_BYTES];
    block.class = class;
    block.hash = hash_add(0xcbf29ce484222325u, (const uint8_t *)&block.vaddr, sizeof(block.vaddr));
    for (size_t i = 0; i < block.insns; i++) {
        size_t size = insn_bytes(qemu_plugin_tb_get_insn(tb, i), bytes);
        block.hash = hash_add(block.hash, bytes, size);
        block.bytes += (uint32_t)size;
    }
    make_room();
    size_t slot = slot_of(&block);
    if (table[slot])
        return table[slot] - 1;
    keep_lengths(&block, tb);
    block.entries = counter_new();
    block.executed = counter_new();
    blocks[used] = block;
    table[slot] = ++used;
    return used - 1;
}

struct block *block_at(unsigned number) {
    return &blocks[number];
}

unsigned block_count(void) {
    return used;
}

const uint8_t *block_lengths(size_t *count) {
    *count = lengths_used;
    return lengths;
}
