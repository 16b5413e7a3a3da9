// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The guest of a hypervisor that runs within the machine, told from the machine itself (the host).
 *
 * The host enters it by one instruction (`guest-entry`; SVM's VMRUN), which ends its block. When the guest is left, for
 * whatever reason, the host goes on behind that instruction: the guest's time ends where the block begins that lies
 * there in the host's memory. QEMU translates a block right before it executes it the first time, and keeps the mode
 * among the flags by which it finds blocks again. So a block is the guest's if it is translated between the two, and
 * stays so, even where host and guest have code at one address.
 */
#ifndef VT_GUEST_H
#define VT_GUEST_H

#include "config.h"
#include "output.h"
#include "qemu_api.h"

void guest_prepare(const struct config *config);

// Whether a block that is just being translated is the guest's. Watches for the end of the guest's time.
bool guest_has(struct qemu_plugin_tb *tb);

// The instruction of a block of the host's that enters the guest, or NULL.
struct qemu_plugin_insn *guest_entry_in(struct qemu_plugin_tb *tb);

// Count the entries there; blocks translated after one are the guest's.
void guest_watch_entry(struct qemu_plugin_insn *entry);

// Count the instructions of a block of the guest's.
void guest_count(struct qemu_plugin_tb *tb);

void guest_totals(struct guest_totals *totals);

#endif
