// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What the plugin is told, one statement a line; `#` begins a comment. Addresses are hexadecimal.
 *
 *     architecture NAME           what the result file says of itself
 *     target NAME                 what QEMU must emulate, in its own words
 *     half ADDRESS                code from here on is the kernel's
 *     prefix VALUE MASK [half]    bytes before an instruction's own (`half`: in the kernel's half only)
 *     port VALUE MASK [half]      an instruction whose byte, under the mask, is this value accesses I/O ports
 *     firmware START END          firmware that the kernel calls lies at START <= address < END, virtual and physical
 *     at-once ADDRESS             a page of a device that answers at once: nothing settles after a write to it
 *     mode counts|coverage|settle counts: every instruction exactly; coverage: entries of blocks only; settle:
 *                                 count nothing, only settle after writes to devices (default counts)
 *     devices on|off              count memory-mapped device accesses, and settle after writes to them
 *                                 (default on)
 *     kernel ADDRESS              lower code is user code once this instruction has been translated (give
 *                                 start_kernel; default: the first instruction of the kernel's half)
 *     owner NAME START END        user code at START <= address < END belongs to NAME
 *     guest-entry BYTES           the instruction, in hexadecimal, by which a hypervisor within the machine enters its
 *                                 guest: count that guest apart. It ends its block, and what follows it is what
 *                                 is executed first when the guest is left
 *     guest-kernel ADDRESS        as `kernel`, of that guest
 *     mark NAME ADDRESS [once|every] [host|guest]
 *                                 a phase ends and the next begins when this instruction is reached (the first
 *                                 time) by the machine itself (default), or by its guest
 *     mark NAME entry [once|every]
 *                                 the same when the guest is entered
 *     span NAME ADDRESS [host|guest]
 *                                 note the totals each time this instruction is reached
 *     span NAME entry             the same when the guest is entered
 */
#ifndef VT_CONFIG_H
#define VT_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

enum { OWNER_BOOT = 0, OWNER_OTHER = 1, MAX_OWNERS = 16, MAX_OPCODES = 32, MAX_PAGES = 16, MAX_ENTRY_BYTES = 8 };

// An instruction's byte that, under `mask`, is `value`.
struct opcode {
    uint8_t value, mask;
    bool in_half; // only in code of the kernel's half
};

struct opcodes {
    struct opcode rows[MAX_OPCODES];
    unsigned count;
};

struct owner {
    char *name;
    uint64_t start, end;
};

struct point {
    char *name;
    uint64_t address;
    bool is_span, every, in_guest, at_entry, done;
    unsigned number; // among the marks, or among the spans
};

struct config {
    bool exact, devices, settle_only;
    char *architecture, *target;
    uint64_t half, kernel;           // kernel 0: any address of the kernel's half
    uint64_t firmware, firmware_end; // both 0: none that stays
    uint8_t guest_entry[MAX_ENTRY_BYTES];
    unsigned guest_entry_size; // 0: no guest is counted apart
    uint64_t guest_kernel;     // 0: any address of the kernel's half
    struct opcodes prefixes, ports;
    uint64_t pages[MAX_PAGES];
    unsigned page_count;
    struct owner owners[MAX_OWNERS]; // [0] no user code has run yet; [1] user code of no named owner
    unsigned owner_count;
    struct point *points; // marks and spans, sorted by address
    unsigned point_count, mark_count, span_count;
};

// Read a file into `config`. Returns an error message that names the line, or NULL.
const char *config_read(struct config *config, const char *path);

// The first point whose address lies in [start, end), or NULL; the next ones follow it. Points at a guest's entry have
// address 0.
struct point *config_point_at(const struct config *config, uint64_t start, uint64_t end);

// Whether a byte is of one of these instructions. `in_half`: it is in code of the kernel's half.
bool opcodes_hold(const struct opcodes *opcodes, uint8_t byte, bool in_half);

// The owner of a user address.
unsigned config_owner_of(const struct config *config, uint64_t address);

#endif
