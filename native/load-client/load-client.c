/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The record is lines of text (docs/reference/guest-init.md):
 *
 *     load STEP
 *     clock fine-ns=NUMBER        what its timers are right to
 *     stage KEY=NUMBER ...
 *     why TEXT                    the stage's first fault
 *     latency BUCKET:COUNT ...    of the stage
 *     end
 */

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "common/clock.h"
#include "load-client/plan.h"
#include "load-client/stage.h"

#define MOST_STAGES 64
#define ON_A_LINE 16
#define CALM_NS 100000000 /* between two stages, for what the last one left behind */
#define LOOKS 30          /* so often it is asked whether timers are precise, before a load that needs them */

static struct plan plan;
static struct stage stage;
static uint64_t asked, right;
static unsigned stages;
static char why[200];

static void print_stage(void) {
    static const char *const names[FAILURES] = {"right", "refused", "reset", "timeout", "unsent", "wrong", "other"};
    const struct histogram *latency = &stage.latency;
    printf("stage rate=%llu asked=%llu", (unsigned long long)stage.rate, (unsigned long long)stage.asked);
    for (int i = 0; i < FAILURES; i++)
        printf(" %s=%llu", names[i], (unsigned long long)stage.ends[i]);
    printf(" connections=%llu offered-ns=%llu took-ns=%llu late-ns=%llu latest-ns=%llu gave-up=%d held=%d",
           (unsigned long long)stage.connections, (unsigned long long)stage.offered_ns,
           (unsigned long long)stage.took_ns, (unsigned long long)stage.late_ns, (unsigned long long)stage.latest_ns,
           stage.gave_up, stage_held(&stage));
    printf(" sum-ns=%llu least-ns=%llu most-ns=%llu\n", (unsigned long long)latency->sum,
           (unsigned long long)(latency->count > 0 ? latency->smallest : 0), (unsigned long long)latency->largest);
    for (char *at = stage.why; *at != '\0'; at++)
        *at = (unsigned char)*at < ' ' || *at == 127 ? '?' : *at;
    if (stage.why[0] != '\0')
        printf("why %s\n", stage.why);
    unsigned on_line = 0;
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        if (latency->buckets[i] == 0)
            continue;
        printf("%s%u:%u", on_line == 0 ? "latency " : " ", i, latency->buckets[i]);
        on_line = (on_line + 1) % ON_A_LINE;
        if (on_line == 0)
            printf("\n");
    }
    if (on_line > 0)
        printf("\n");
}

/* Returns whether the stage was as it should. */
static bool try_rate(uint64_t rate, uint64_t limit) {
    if (stages++ > 0)
        nanosleep(&(struct timespec){0, CALM_NS}, NULL);
    stage_run(&stage, &plan, rate, limit);
    print_stage();
    bool held = rate > 0 ? stage_held(&stage) : stage.ends[RIGHT] == stage.asked;
    asked += stage.asked;
    right += stage.ends[RIGHT];
    if (why[0] == '\0')
        memcpy(why, stage.why, sizeof why);
    return held;
}

/* A kernel has none but its ticks, of milliseconds, until it trusts its clock: a second or two after its start. */
static uint64_t wait_for_precise_timers(bool needed) {
    struct timespec fine = {0};
    for (int looks = 0; clock_getres(CLOCK_MONOTONIC, &fine) == 0 && needed && looks < LOOKS; looks++) {
        if (fine.tv_sec == 0 && fine.tv_nsec < 1000)
            break;
        nanosleep(&(struct timespec){0, CALM_NS}, NULL);
    }
    return (uint64_t)fine.tv_sec * 1000000000u + (uint64_t)fine.tv_nsec;
}

static void sweep(uint64_t limit) {
    uint64_t low = 0, high = 0, rate = plan.rate;
    while (high == 0 && rate <= plan.to && stages < MOST_STAGES && now_ns() < limit) {
        if (try_rate(rate, limit))
            low = rate;
        else
            high = rate;
        uint64_t next = rate * plan.step_percent / 100;
        rate = next <= plan.to || rate == plan.to ? next : plan.to;
        rate = next == rate && high == 0 && low == plan.to ? plan.to + 1 : rate;
    }
    for (uint64_t i = 0; i < plan.refine && low > 0 && high > 0 && stages < MOST_STAGES && now_ns() < limit; i++) {
        uint64_t middle = (low + high) / 2;
        if (try_rate(middle, limit))
            low = middle;
        else
            high = middle;
    }
}

/* One item of the verdict, with its NUL. */
static void item(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void item(const char *format, ...) {
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\0');
}

static void print_verdict(void) {
    static const char *const words[FAILURES] = {NULL,    "refused", "reset", "too late", "not sent in time",
                                                "wrong", "failed"};
    putchar('\0');
    item("done=%llu", (unsigned long long)asked);
    item("right=%llu", (unsigned long long)right);
    item("same=1");
    if (right == asked)
        return;
    for (int i = REFUSED; i < FAILURES && why[0] == '\0'; i++)
        if (stage.ends[i] > 0)
            snprintf(why, sizeof why, "%s", words[i]);
    item("why=%s", why);
}

int main(int argc, char **argv) {
    const char *wrong = plan_read(&plan, argc - 1, argv + 1);
    if (wrong == NULL && !stage_prepare(&plan))
        wrong = "no memory for so many connections, or no way to wait for them";
    if (wrong != NULL) {
        fprintf(stderr, "load-client: %s\n", wrong);
        return 2;
    }
    prctl(PR_SET_TIMERSLACK, 1);
    uint64_t fine_ns = wait_for_precise_timers(plan.rate > 0 || plan.pause_most_ns > 0);
    uint64_t limit = now_ns() + plan.limit_ns;
    printf("load %llu\nclock fine-ns=%llu\n", (unsigned long long)plan.step, (unsigned long long)fine_ns);
    if (plan.to > 0)
        sweep(limit);
    else
        try_rate(plan.rate, limit);
    printf("end\n");
    print_verdict();
    return fflush(stdout) == 0 && right == asked && asked > 0 ? 0 : 1;
}
