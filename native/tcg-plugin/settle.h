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

// Returns when every other thread of the process sleeps, or after two to three seconds.
void settle(void);

#endif
