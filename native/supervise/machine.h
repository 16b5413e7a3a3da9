// SPDX-License-Identifier: Apache-2.0
// The programs of one machine: its monitor, and what runs beside it.
#ifndef VT_SUPERVISE_MACHINE_H
#define VT_SUPERVISE_MACHINE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/wire.h"
#include "supervise/bytes.h"
#include "supervise/orders.h"

struct machine {
    pid_t pid, beside[MOST_PROGRAMS];
    int serial_in, serial_out; // our ends of the serial line
    int control, line;         // our ends of QMP and of the console beside a virtio port, or -1
    int errors;                // what the monitor says for itself
    struct bytes said;         // the end of it
    bool ended;
    int status; // its exit status, or what waitpid says of its signal, negative
    int64_t started_ms;
    uint8_t key[WIRE_KEY];
};

// Open all files of the orders. False, with nothing started, when one is not what it was when it was checked.
bool machine_open(struct orders *orders);

// Start the programs. Ends ours, with a word, when that cannot be done.
void machine_start(struct machine *machine, const struct orders *orders);

// Read what the monitor says for itself.
void machine_listen(struct machine *machine);

// Look whether the monitor has ended; wait so long for it.
bool machine_wait(struct machine *machine, int64_t wait_ms);

// Milliseconds that the monitor has been on a processor.
int64_t machine_used_ms(const struct machine *machine);

// Processor time that the monitor has used, in ticks, when all of its threads sleep, and where they do (`places`); else
// -1.
int64_t machine_asleep(const struct machine *machine, struct bytes *places);

// End the programs, and close what is left.
void machine_stop(struct machine *machine);

int64_t now_ms(void);

// Close a descriptor, once.
void close_once(int *fd);

#endif
