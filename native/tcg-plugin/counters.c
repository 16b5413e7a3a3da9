// SPDX-License-Identifier: GPL-2.0-or-later
#include "counters.h"

#include "die.h"

#include <stdlib.h>

#define PER_SLAB 8192u
#define MAX_SLABS 4096u

struct slab {
    uint64_t *values;
#if VT_PLUGIN_API != 1
    struct qemu_plugin_scoreboard *score;
#endif
};

static struct slab slabs[MAX_SLABS];
static unsigned used;

static void add_slab(struct slab *slab) {
#if VT_PLUGIN_API == 1
    slab->values = calloc(PER_SLAB, sizeof(uint64_t));
    if (!slab->values)
        die("out of memory for counters");
#else
    slab->score = qemu_plugin_scoreboard_new(PER_SLAB * sizeof(uint64_t));
#endif
}

unsigned counter_new(void) {
    if (used == MAX_SLABS * PER_SLAB)
        die("more than %u counters", used);
    if (used % PER_SLAB == 0)
        add_slab(&slabs[used / PER_SLAB]);
    return used++;
}

uint64_t counter_value(unsigned counter) {
    struct slab *slab = &slabs[counter / PER_SLAB];
#if VT_PLUGIN_API != 1
    // Only now is there surely a vCPU, as QEMU demands. The memory moves only when another is added; plugin.c forbids
    // it.
    if (!slab->values)
        slab->values = qemu_plugin_scoreboard_find(slab->score, 0);
#endif
    return slab->values[counter % PER_SLAB];
}

#if VT_PLUGIN_API == 1

static uint64_t *place(unsigned counter) {
    return &slabs[counter / PER_SLAB].values[counter % PER_SLAB];
}

void counter_add_at_block(unsigned counter, struct qemu_plugin_tb *tb, uint64_t add) {
    qemu_plugin_register_vcpu_tb_exec_inline(tb, QEMU_PLUGIN_INLINE_ADD_U64, place(counter), add);
}

void counter_add_at_insn(unsigned counter, struct qemu_plugin_insn *insn, uint64_t add) {
    qemu_plugin_register_vcpu_insn_exec_inline(insn, QEMU_PLUGIN_INLINE_ADD_U64, place(counter), add);
}

#else

static qemu_plugin_u64 place(unsigned counter) {
    qemu_plugin_u64 entry = {slabs[counter / PER_SLAB].score, (counter % PER_SLAB) * sizeof(uint64_t)};
    return entry;
}

void counter_add_at_block(unsigned counter, struct qemu_plugin_tb *tb, uint64_t add) {
    qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(tb, QEMU_PLUGIN_INLINE_ADD_U64, place(counter), add);
}

void counter_add_at_insn(unsigned counter, struct qemu_plugin_insn *insn, uint64_t add) {
    qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(insn, QEMU_PLUGIN_INLINE_ADD_U64, place(counter), add);
}

#endif
