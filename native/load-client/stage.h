/* SPDX-License-Identifier: Apache-2.0 */
/* One stage of a load: so many sessions at once, or so many requests a second for a time. */
#ifndef VT_STAGE_H
#define VT_STAGE_H

#include "load-client/connection.h"
#include "load-client/histogram.h"
#include "load-client/plan.h"

/* `asked`: requests that belong to it; each was right, or failed in one way. */
struct stage {
    uint64_t rate; /* in 1000 seconds, 0: closed loop */
    uint64_t asked, ends[FAILURES];
    uint64_t connections;        /* that were opened */
    uint64_t offered_ns;         /* the time in which an open loop's requests were to begin */
    uint64_t took_ns;            /* from its begin to the last end */
    uint64_t late_ns, latest_ns; /* by which requests began after their moment: in all, and the most */
    bool gave_up;                /* nothing was answered right for long */
    struct histogram latency;    /* of right answers, from the scheduled moment */
    char why[200];               /* the first fault */
};

/* False when there is no memory or no way to wait. */
bool stage_prepare(struct plan *plan);
/* Until all is answered or failed, at the latest at `limit` (ns). */
void stage_run(struct stage *stage, struct plan *plan, uint64_t rate, uint64_t limit);
/* An open loop's requests were all answered right, and no more than a hundredth late. */
bool stage_held(const struct stage *stage);

#endif
