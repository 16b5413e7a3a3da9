/* SPDX-License-Identifier: Apache-2.0 */
#include "sampler/sample.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

#include "common/clock.h"
#include "sampler/containers.h"
#include "sampler/machine.h"
#include "sampler/text.h"

#define LEAST_MS 10
#define MOST_MS 86400000

static bool sample_once(void) {
    out_start();
    out_line("sample");
    out_number(now_ns());
    out_number(real_ns());
    out_line("\n");
    machine_sample();
    containers_sample();
    out_line("end\n");
    return out_write();
}

static void sleep_until(uint64_t ns) {
    struct timespec at = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
        ;
}

int sample_until_end(const char *every_ms, const char *count) {
    long every = strtol(every_ms, NULL, 10), left = strtol(count, NULL, 10);
    if (every < LEAST_MS || every > MOST_MS || left < 0) {
        fprintf(stderr, "sample: every %s ms, %s times: not in range\n", every_ms, count);
        return 2;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    uint64_t step = (uint64_t)every * 1000000u, due = now_ns();
    for (bool forever = left == 0; forever || left > 0; left--) {
        if (!sample_once())
            return 0;
        due += step;
        uint64_t now = now_ns();
        if (due < now) /* a slow machine leaves samples out, and keeps the beat */
            due += (now - due + step - 1) / step * step;
        sleep_until(due);
    }
    return 0;
}
