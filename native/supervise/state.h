// SPDX-License-Identifier: Apache-2.0
// The folder of a machine that has a name: the lock that tells that somebody runs it, its state and its log.
#ifndef VT_SUPERVISE_STATE_H
#define VT_SUPERVISE_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "supervise/bytes.h"
#include "supervise/orders.h"

struct state {
    int folder; // -1: the machine has none
    const char *status, *health;
    uint64_t started_ns, finished_ns; // real time; 0: not yet
    int exit;
    int64_t restarts;
    char error[1024];
};

// Take the machine: hold its lock as long as this process lives, and open its log. False when somebody runs it already.
bool state_open(struct state *state, const struct orders *orders);

// Write down where its control socket is: the folder depends on the environment of whoever started it.
void state_place(const struct state *state, const char *runtime);

// Write the state, by rename.
void state_save(const struct state *state);

// The state as records, which are appended.
void state_records(const struct state *state, struct bytes *text);

// Write what a container says into the log, a line of JSON for each of its lines; `log_flush`: what is left without an
// end.
void log_output(bool errors, const uint8_t *data, size_t length);
void log_flush(void);

uint64_t real_ns(void);

#endif
