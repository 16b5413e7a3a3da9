/* SPDX-License-Identifier: Apache-2.0 */
#include "init/base/marks.h"

#include "arch.h"
#include "common/clock.h"

static struct stamp stamp(uint64_t counted) {
    return (struct stamp){counted, now_ns(), real_ns()};
}

/* The comment in the assembly differs, so that no compiler folds two marks into one address. */
#define MARK(name)                                                                                                     \
    __attribute__((noinline)) struct stamp vt_mark_##name(void) {                                                      \
        uint64_t counted = arch_cycles();                                                                              \
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
