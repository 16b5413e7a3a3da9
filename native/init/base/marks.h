/* SPDX-License-Identifier: Apache-2.0 */
/* Moments of a boot. Each has a function of its own, so that whoever watches the processor can mark it by address. */
#ifndef VT_MARKS_H
#define VT_MARKS_H

#include <stdint.h>

struct stamp {
    uint64_t cycles;  /* the processor's counter */
    uint64_t mono_ns; /* since the kernel's clock started */
    uint64_t real_ns; /* since 1970 */
};

struct stamp vt_mark_init(void);
struct stamp vt_mark_entry(void);
struct stamp vt_mark_ready(void);
struct stamp vt_mark_load(void);
struct stamp vt_mark_load_end(void);
struct stamp vt_mark_stop(void);
struct stamp vt_mark_end(void);

#endif
