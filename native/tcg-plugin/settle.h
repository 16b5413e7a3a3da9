// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Let QEMU's other threads finish before the guest goes on.
 *
 * The guest's clock stands still while QEMU's worker and main threads serve a disk request, but the guest does not: how
 * far it gets before the interrupt arrives, or how far its idle clock jumps ahead, would depend on the host's mood. So
 * the one vCPU thread waits, right after the guest has told a device to work, until all others sleep: a request then
 * takes no guest time, in every run.
 */
#ifndef VT_SETTLE_H
#define VT_SETTLE_H

#include "config.h"
#include "qemu_api.h"

// Settle after a device was told to work, unless it is one that answers at once.
void settle_after(const struct config *config, const struct qemu_plugin_hwaddr *address);

// Do so after each store of an instruction to a device.
void settle_after_stores(const struct config *config, struct qemu_plugin_insn *insn);

#endif
