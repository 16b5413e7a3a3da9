// SPDX-License-Identifier: Apache-2.0
// The relay between a caller's terminal and signals and a guest, until the guest ends. Nothing here waits for ever.
#ifndef VT_SUPERVISE_RELAY_H
#define VT_SUPERVISE_RELAY_H

#include "supervise/run.h"

// Start the machine, and relay until it has ended, or should be ended; then it is gone.
void relay_run(struct relay *relay);

// Look after all that is not of the machine, for so long, as long as it may be started again.
void relay_idle(struct relay *relay, int64_t wait_ms);

// In the background: tell the starter that clients may come, and wait until one is attached. False when none has come,
// or an end was asked for.
bool relay_await(struct relay *relay);

// Wait until all output is read, after the end of the machine. Once somebody has asked for the end, wait no longer than
// the grace period, and tell of output that is dropped.
void relay_drain(struct relay *relay);

#endif
