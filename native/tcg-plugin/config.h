// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What the plugin is told, one statement a line; `#` begins a comment. Addresses are hexadecimal.
 *
 *     mode counts|coverage        counts: every instruction exactly; coverage: entries of blocks only (default counts)
 *     devices on|off              count memory-mapped device accesses, and settle after writes to them (default on)
 *     kernel ADDRESS              lower-half code is user code once this instruction has been translated (give
 * start_kernel; default: the first instruction of the upper half) owner NAME START END        user code at START <=
 * address < END belongs to NAME mark NAME ADDRESS [every]   a phase ends and the next begins when this instruction is
 * reached (the first time) span NAME ADDRESS           note the totals each time this instruction is reached
 */
#ifndef VT_CONFIG_H
#define VT_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#define KERNEL_HALF 0xffff800000000000u

enum { OWNER_BOOT = 0, OWNER_OTHER = 1, MAX_OWNERS = 16 };

struct owner {
    char *name;
    uint64_t start, end;
};

struct point {
    char *name;
    uint64_t address;
    bool is_span, every, done;
    unsigned number; // among the marks, or among the spans
};

struct config {
    bool exact, devices;
    uint64_t kernel;                 // KERNEL_HALF: any address of the upper half
    struct owner owners[MAX_OWNERS]; // [0] no user code has run yet; [1] user code of no named owner
    unsigned owner_count;
    struct point *points; // marks and spans, sorted by address
    unsigned point_count, mark_count, span_count;
};

// Read a file into `config`. Returns an error message that names the line, or NULL.
const char *config_read(struct config *config, const char *path);

// The first point whose address lies in [start, end), or NULL; the next ones follow it.
struct point *config_point_at(const struct config *config, uint64_t start, uint64_t end);

// The owner of a user address.
unsigned config_owner_of(const struct config *config, uint64_t address);

#endif
