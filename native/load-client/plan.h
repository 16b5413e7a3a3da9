/* SPDX-License-Identifier: Apache-2.0 */
/* A load, as words "KEY=VALUE": how many connections, how often, and the pages that are asked for. */
#ifndef VT_PLAN_H
#define VT_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/verdict.h"

#define MAX_PAGES 64
#define MAX_CONNECTIONS 4096

enum protocol { HTTP, REDIS, COMMAND };

/* One request, and what is right about its answer. */
struct page {
    const char *method, *path;
    struct list words;   /* of a command, of Redis or of the container */
    const char *program; /* where the container's is; NULL: it is none */
    int status;          /* of HTTP, or of the command's exit; -1: any */
    const char *contains, *sha256, *answer;
    char *request;
    size_t length;
    struct match match; /* copied for each answer */
    /* With `sha256`: a right answer was digested, and this is its quick digest, which others must have. */
    bool known;
    uint64_t known_mix, known_length;
};

/* Numbers are as wide as they are read. */
struct plan {
    enum protocol protocol;
    const char *address;
    uint64_t port, step;
    uint64_t at_once;                       /* connections at a time, at most */
    uint64_t sessions;                      /* closed loop: how many in all */
    uint64_t calls;                         /* requests of a session */
    uint64_t keep, keep_between;            /* 1: the connection within a session; from one session to the next */
    uint64_t timeout_ns, limit_ns;          /* of one request; of the whole load */
    uint64_t pause_least_ns, pause_most_ns; /* between the requests of a session */
    uint64_t seed;
    /* Open loop: requests in 1000 seconds, 0: a closed loop. `to` 0: that rate alone. */
    uint64_t rate, to;
    uint64_t step_percent, refine; /* a sweep's factor, and how often the gap at its end is halved */
    uint64_t stage_ns;
    uint64_t random; /* 1: arrivals at random, as of many who know nothing of each other */
    struct page pages[MAX_PAGES];
    unsigned page_count;
};

/* Read words. Returns NULL, or what is wrong. */
const char *plan_read(struct plan *plan, int count, char **words);

#endif
