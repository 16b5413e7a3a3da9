// SPDX-License-Identifier: Apache-2.0
// Orders: records "key value", each ended by a NUL, after the line "vmtailor 1" (docs/reference/supervisor.md).
#ifndef VT_SUPERVISE_ORDERS_H
#define VT_SUPERVISE_ORDERS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/records.h"

#define MOST_FILES 64
#define MOST_PROGRAMS 9
#define END_RECORD 3 // the descriptor at which who words an end finds its record

enum use { USE_READ, USE_WRITE, USE_COPY, USE_INHERIT };

// A file as it was when it was checked; `device` 0: any.
struct known {
    uint64_t device, inode, size, modified_ns, changed_ns;
};

// A file for a program, which has it at descriptor `number`; -1: it is only looked at.
struct file {
    enum use use;
    int number, opened;
    struct known known;
    const char *path;
};

struct program {
    struct list argv, env;
    struct file files[MOST_FILES];
    size_t count;
};

struct orders {
    struct program programs[MOST_PROGRAMS]; // the first is the monitor, which is started behind the others
    size_t count;
    struct list volume;        // records of the run volume
    int memory, control, line; // the monitor's descriptors of the run volume, QMP and the console; 0: none
    int stop_signal;
    int64_t grace_ms, start_ms, last_ms; // -1: no limit
    int64_t flush_ms;                    // for what a guest that is killed has not written yet; 0: it is ended at once
    bool interactive, terminal, detached, explain_always;
    bool awaits;                         // in the background: nothing is started before a client is attached
    bool no_stdin, no_stdout, no_stderr; // of the caller's streams, those that the container is not attached to
    bool builtins;                       // init starts further processes, and has programs of its own for them
    const char *announce, *start_print, *cpu, *halted;
    const char *state, *runtime, *restart;
    int64_t log_bytes, log_files;
    struct list health;
    int64_t health_interval_ms, health_timeout_ms, health_start_ms, health_retries;
    int told; // takes the file that init tells of refused calls; 0: none
    struct list explain, otherwise;
};

// Read orders, which stay in memory. Ends the program with a word and status 64 when they are not understood.
void orders_read(struct orders *orders, char *text, size_t length);

#endif
