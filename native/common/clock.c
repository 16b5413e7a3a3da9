/* SPDX-License-Identifier: Apache-2.0 */
#include "common/clock.h"

#include <time.h>

static uint64_t clock_ns(clockid_t id) {
    struct timespec time = {0};
    clock_gettime(id, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

uint64_t now_ns(void) {
    return clock_ns(CLOCK_MONOTONIC);
}

uint64_t real_ns(void) {
    return clock_ns(CLOCK_REALTIME);
}
