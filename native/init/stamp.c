/* SPDX-License-Identifier: Apache-2.0 */
#include "stamp.h"

#include <time.h>

static uint64_t clock_ns(clockid_t id) {
    struct timespec time = {0};
    clock_gettime(id, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

uint64_t now_ns(void) {
    return clock_ns(CLOCK_MONOTONIC);
}

static inline uint64_t cycles(void) {
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t value;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(value));
    return value;
#else
    return 0;
#endif
}

static struct stamp stamp(uint64_t counted) {
    return (struct stamp){counted, clock_ns(CLOCK_MONOTONIC), clock_ns(CLOCK_REALTIME)};
}

/* The comment in the assembly differs, so that no compiler folds two marks into one address. */
#define MARK(name)                                                                                                     \
    __attribute__((noinline)) struct stamp vt_mark_##name(void) {                                                      \
        uint64_t counted = cycles();                                                                                   \
        __asm__ volatile("/* mark " #name " */" ::: "memory");                                                         \
        return stamp(counted);                                                                                         \
    }

MARK(init)
MARK(entry)
MARK(ready)
MARK(load)
MARK(load_end)
MARK(stop)
MARK(end)
