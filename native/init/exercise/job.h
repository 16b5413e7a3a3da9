/* SPDX-License-Identifier: Apache-2.0 */
/* One thing that the exercise does at a time: a client's requests, or a command in the container. */
#ifndef VT_JOB_H
#define VT_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/records.h"
#include "common/verdict.h"
#include "init/base/event_loop.h"

#define MS 1000000u
#define READY (-1) /* the step number of the ready check */

struct job {
    int number; /* of the step */
    const struct step *step;
    bool tool; /* the client: it judges by itself, `said` is its verdict */
    pid_t pid;
    uint64_t began, deadline;
    uint64_t since, limit_ms; /* what the deadline was made of */
    bool killed;
    struct watch out, err;
    struct verdict verdict;
    struct answer answer;
    struct match match;
    char said[1900];
    size_t said_length;
    char *record; /* what loads told of themselves, all of them together: the host gets it once the load is over */
    size_t record_length;
    bool recorded; /* this one has told all of it */
    char last_words[200];
    char errors[1024]; /* what it said on its standard error, all times together */
    size_t errors_length;
};

extern struct job job;
/* What limits of time are stretched to, in percent, as far as it is known. */
extern unsigned job_stretch;

/* Start a step. `ready_deadline` bounds the ready check's client, which tries again by itself. */
void job_start(int number, const struct step *step, uint64_t ready_deadline);
/* Start the command of the step once more. */
void job_again(void);
void job_kill(void);
/* Its process has ended: take what it still left in its pipes. */
void job_finish(void);
/* Send a result: the client's own items, the verdict on a command, or one fault. */
void job_report(const char *items, size_t length);
void job_report_verdict(void);
/* Send what a command of the load said on its standard error, as part of the file of that name. */
void job_report_errors(void);
void job_report_fault(const char *why);
/* Send what loads told of themselves, as the file of that name. */
void job_report_loads(void);

#endif
