// SPDX-License-Identifier: GPL-2.0-or-later
#include "guest.h"

#include "blocks.h"
#include "counters.h"
#include "die.h"

#include <string.h>

#define MAX_RETURNS 64u
#define PAGE 4096u

// Where the host goes on when it has left the guest.
struct place {
    uint64_t vaddr;
    uintptr_t memory; // the host's address in QEMU's memory; 0: not known
};

static const struct config *config;
static bool entered, kernel_seen;
static unsigned early_counter, kernel_counter, user_counter, entries_counter;
static uint64_t early_total; // when the guest's kernel proper was reached
static struct place returns[MAX_RETURNS];
static unsigned return_count;

void guest_prepare(const struct config *from) {
    config = from;
    early_counter = counter_new();
    kernel_counter = counter_new();
    user_counter = counter_new();
    entries_counter = counter_new();
}

static void on_entry(unsigned vcpu, void *userdata) {
    (void)vcpu;
    (void)userdata;
    entered = true;
}

static void on_return(unsigned vcpu, void *userdata) {
    (void)vcpu;
    (void)userdata;
    entered = false;
}

// The guest may have code at the same virtual address, but never in the host's memory.
static bool is_return(struct qemu_plugin_tb *tb) {
    uint64_t vaddr = qemu_plugin_tb_vaddr(tb);
    uintptr_t memory = (uintptr_t)qemu_plugin_insn_haddr(qemu_plugin_tb_get_insn(tb, 0));
    for (unsigned i = 0; i < return_count; i++)
        if (returns[i].vaddr == vaddr && (!returns[i].memory || returns[i].memory == memory))
            return true;
    return false;
}

bool guest_has(struct qemu_plugin_tb *tb) {
    if (!is_return(tb))
        return entered;
    qemu_plugin_register_vcpu_tb_exec_cb(tb, on_return, QEMU_PLUGIN_CB_NO_REGS, NULL);
    return false;
}

struct qemu_plugin_insn *guest_entry_in(struct qemu_plugin_tb *tb) {
    struct qemu_plugin_insn *last = qemu_plugin_tb_get_insn(tb, qemu_plugin_tb_n_insns(tb) - 1);
    uint8_t bytes[MAX_INSN_BYTES];
    size_t size = insn_bytes(last, bytes);
    return size == config->guest_entry_size && !memcmp(bytes, config->guest_entry, size) ? last : NULL;
}

void guest_watch_entry(struct qemu_plugin_insn *entry) {
    uintptr_t memory = (uintptr_t)qemu_plugin_insn_haddr(entry);
    struct place place = {qemu_plugin_insn_vaddr(entry) + config->guest_entry_size, 0};
    unsigned i = 0;
    if (memory && place.vaddr % PAGE >= config->guest_entry_size) // in the same page
        place.memory = memory + config->guest_entry_size;
    while (i < return_count && (returns[i].vaddr != place.vaddr || returns[i].memory != place.memory))
        i++;
    if (i == MAX_RETURNS)
        die("guests are entered at more than %u places", MAX_RETURNS);
    if (i == return_count)
        returns[return_count++] = place;
    counter_add_at_insn(entries_counter, entry, 1);
    qemu_plugin_register_vcpu_insn_exec_cb(entry, on_entry, QEMU_PLUGIN_CB_NO_REGS, NULL);
}

void guest_count(struct qemu_plugin_tb *tb) {
    size_t count = qemu_plugin_tb_n_insns(tb);
    unsigned counter = kernel_seen ? user_counter : early_counter;
    if (qemu_plugin_tb_vaddr(tb) >= config->half) {
        counter = kernel_counter;
        if (!kernel_seen && (!config->guest_kernel || block_holds(tb, config->guest_kernel))) {
            early_total = counter_value(early_counter);
            kernel_seen = true;
        }
    }
    if (!config->exact) {
        counter_add_at_block(counter, tb, count);
        return;
    }
    for (size_t i = 0; i < count; i++)
        counter_add_at_insn(counter, qemu_plugin_tb_get_insn(tb, i), 1);
}

// What ran at low addresses before the kernel was reached and runs again later is the kernel's, as in plugin.c.
void guest_totals(struct guest_totals *totals) {
    uint64_t early = counter_value(early_counter);
    totals->early = kernel_seen ? early_total : early;
    totals->kernel = counter_value(kernel_counter) + (early - totals->early);
    totals->user = counter_value(user_counter);
    totals->entries = counter_value(entries_counter);
}
