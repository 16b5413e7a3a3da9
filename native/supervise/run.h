// SPDX-License-Identifier: Apache-2.0
// One run of a machine: all that belongs to it.
#ifndef VT_SUPERVISE_RUN_H
#define VT_SUPERVISE_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "supervise/guest.h"
#include "supervise/machine.h"
#include "supervise/orders.h"
#include "supervise/outlet.h"
#include "supervise/qmp.h"
#include "supervise/state.h"

enum finish {
    FINISH_NONE,
    FINISH_CLOSED,      // the machine has ended, or its init has said all
    FINISH_FAREWELL,    // the kernel was made to halt, power off or start again, not by init
    FINISH_HALTED,      // the same, without a word of the kernel
    FINISH_KILLED,      // the grace period is over, or it was asked twice
    FINISH_NOT_STARTED, // init has not spoken in time
    FINISH_SLEPT,       // the monitor did nothing at all before init has spoken: it is started once more
};

struct relay {
    const struct orders *orders;
    struct machine machine;
    struct guest guest;
    struct qmp qmp;
    struct outlet out, err;
    struct state state;
    int signals;
    int started;   // told, once, when the guest's init has spoken; -1: nobody waits for that
    bool alone;    // in the background, with no stream of the caller's any more
    bool restarts; // it may be started again
    bool reading, killed, gone, monitor_ended; // monitor_ended: by itself
    bool slept;                                // it was started once more for that
    int64_t used;        // processor time at the last look at a silent monitor that sleeps, in ticks; -1: none
    const char *waiting; // lines for standard error, once the guest has spoken and its ports are open
    int64_t grace_ms, asked_ms, ended_ms, heard_ms, finished_ms; // of asked and ended -1: not yet
    int64_t flush_ms;                                            // when its container was killed; -1: not yet
    enum finish finish;
};

// Ask the container to end. `number`: the signal.
void relay_stop(struct relay *relay, int number);

#endif
