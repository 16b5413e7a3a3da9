/* SPDX-License-Identifier: Apache-2.0 */
#include "init/container/slowdown.h"

#include "common/clock.h"
#include "init/container/traced.h"

/* Turns of a loop in which each waits for the one before: one takes a nanosecond on processors of today. */
#define TURNS 20000
#define TRIES 5 /* the fastest counts: the others were interrupted */
#define MOST 800

static volatile uint32_t kept; /* or there would be nothing to do */

static uint64_t turns_ns(void) {
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < TRIES; i++) {
        uint64_t before = now_ns();
        uint32_t value = (uint32_t)before;
        for (int turn = 0; turn < TURNS; turn++)
            value = value * 1664525u + 1013904223u;
        kept = value;
        uint64_t took = now_ns() - before;
        best = took < best ? took : best;
    }
    return best;
}

/* For each call of a program its tracer runs, and the kernel switches to it and back, which takes the program as long
 * again. What is left of the time is the program's own. */
static uint64_t traced_percent(uint64_t passed_ns) {
    uint64_t taken = 2 * tracers_ns();
    uint64_t least = passed_ns / 8;
    uint64_t left = taken < passed_ns - least ? passed_ns - taken : least;
    return left > 0 ? passed_ns * 100 / left : 100;
}

unsigned slowdown(uint64_t began) {
    uint64_t machine = turns_ns() * 100 / TURNS;
    uint64_t percent = (machine < 100 ? 100 : machine > MOST ? MOST : machine) * traced_percent(now_ns() - began) / 100;
    return percent > MOST ? MOST : (unsigned)percent;
}
