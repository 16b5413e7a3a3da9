// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What the kernel works for: one system call of one program, one interrupt, one exception of a program, a thread. Each
 * instruction belongs to one of them. A call that waits keeps its own until it goes on.
 *
 * The figures of the tree are kept by purposes. Those from before it was known what a call is made on are kept back
 * until then, so that a call's whole path is there.
 */
#ifndef VT_ACTIVITIES_H
#define VT_ACTIVITIES_H

#include <stdbool.h>
#include <stdint.h>

enum activity_kind { ACTIVITY_SYSTEM = 0, ACTIVITY_CALL = 1, ACTIVITY_INTERRUPT = 2, ACTIVITY_EXCEPTION = 3 };

// What one works for. `function`: names the call, or began the rest; `object`: -1 none.
struct purpose {
    uint16_t kind, owner;
    int32_t object;
    uint32_t function;
};

// Work since the last mark: `own` and, within it but apart, deferred work of interrupts. A purpose keeps its row's
// number.
struct work_row {
    struct purpose purpose;
    uint32_t pad;
    uint64_t own, soft;
};

// Calls, interrupts and exceptions that ended since the last mark and executed the same number of instructions.
struct case_row {
    struct purpose purpose;
    uint32_t pad;
    uint64_t own, soft, count;
    uint64_t all_own, all_soft; // of all of them: their sums
};

void activities_prepare(void);

// Begin one; returns its number, which is not 0.
uint32_t activity_begin(enum activity_kind kind, uint32_t function, unsigned owner);

// The function names it from now on; later ones do not. Only where it is a call that has no name yet.
void activity_named(uint32_t activity, uint32_t function);
void activity_on(uint32_t activity, int object);

// A node of the tree executed instructions for it, or was entered. `soft`: as deferred work of interrupts.
void activity_work(uint32_t activity, uint32_t node, bool soft, uint64_t instructions);
void activity_entered(uint32_t activity, uint32_t node);

// It is over. Threads end without.
void activity_end(uint32_t activity);

// All rows, with what was done since the last mark; it is then begun anew.
uint32_t activities_work_rows(const struct work_row **rows);
uint32_t activities_case_rows(const struct case_row **rows);
void activities_begin_anew(void);

// Whether there were so many different cases that their instructions were rounded down to seven binary digits.
bool activities_rounded(void);

#endif
