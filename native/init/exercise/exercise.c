/* SPDX-License-Identifier: Apache-2.0 */
/* The exercise: wait until ready, let the machine come to rest, drive the load, stop. One job at a time: a client, or a
 * command in the container. */
#include "init/exercise/exercise.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "common/clock.h"
#include "init/base/marks.h"
#include "init/base/serial_line.h"
#include "init/container/entry_point.h"
#include "init/container/slowdown.h"
#include "init/container/trace_log.h"
#include "init/exercise/job.h"
#include "init/exercise/sampling.h"
#include "init/machine/at_rest.h"
#include "init/machine/memory.h"
#include "init/settings/settings.h"

#define REST_LOOK (10 * MS)       /* between two looks whether the machine is at rest */
#define PATIENCE (1000 * MS)      /* with an end of the entry point that is under way */
#define REST_LOOKS 3              /* so many in a row must find it so: what waits for a timer comes back */
#define REST_PATIENCE (2000 * MS) /* some containers never rest */

static enum { OFF, WAITING, PAUSED, SETTLING, LOADING, HOLDING, STOPPING } state = OFF;
static bool ready;
static int rested;
static uint64_t ready_deadline, next_try, next_look, rest_deadline, stop_deadline;
static uint64_t began, stop_began;
static uint64_t held_until; /* until then it is not judged how a job ended: by itself, or with the entry point */
static int held_status;

/* A limit is over: is it not, once it is stretched by what this machine is slower? Then `*deadline` is later. */
static bool more_time(uint64_t since, uint64_t limit_ms, uint64_t *deadline) {
    unsigned percent = slowdown(began);
    if (percent > job_stretch) {
        job_stretch = percent;
        line_note("", "what takes a second elsewhere takes %u.%02u s here: limits of time are longer", percent / 100,
                  percent % 100);
    }
    uint64_t later = since + limit_ms * job_stretch / 100 * MS;
    if (later <= now_ns())
        return false;
    *deadline = later;
    return true;
}

static bool more_to_get_ready(void) {
    return more_time(began, (uint64_t)settings.ready_timeout_ms, &ready_deadline);
}

/* End a job whose time is over. The client has had longer than it was given, and is not waited for. */
static void job_late(void) {
    if (job.tool || !more_time(job.since, job.limit_ms, &job.deadline))
        job_kill();
}

static void stop(void) {
    line_mark("stop", vt_mark_stop());
    trace_log_mark("stop");
    state = STOPPING;
    stop_began = now_ns();
    stop_deadline = stop_began + (uint64_t)settings.stop_timeout_ms * job_stretch / 100 * MS;
    bool heeded = entry_heeds(settings.stop_signal);
    entry_signal(settings.stop_signal);
    if (heeded)
        return;
    line_note("", "signal %d has no effect on PID 1, which does not handle it: killed", settings.stop_signal);
    entry_signal(SIGKILL);
    state = OFF;
}

static void load_done(void) {
    line_mark("load_end", vt_mark_load_end());
    trace_log_mark("load_end");
    job_report_loads();
    memory_account();
    if (settings.hold) {
        state = HOLDING;
        line_flush(); /* the host waits for it */
    } else
        stop();
}

static void load_next(void) {
    int next = job.number + 1;
    if ((size_t)next < settings.step_count) {
        sampling_step(next);
        job_start(next, &settings.steps[next], ready_deadline);
    } else
        load_done();
}

static void is_ready(void) {
    ready = true;
    line_mark("ready", vt_mark_ready());
    trace_log_mark("ready");
}

static void load_start(void) {
    state = LOADING;
    line_mark("load", vt_mark_load());
    trace_log_mark("load");
    job.number = -1;
    load_next();
}

static void settle(void) {
    uint64_t now = now_ns();
    state = SETTLING;
    rested = 0;
    next_look = now + REST_LOOK;
    rest_deadline = now + REST_PATIENCE;
}

static void look(void) {
    uint64_t now = now_ns();
    rested = at_rest() ? rested + 1 : 0;
    next_look = now + REST_LOOK;
    if (rested == REST_LOOKS || now >= rest_deadline)
        load_start();
}

static void ready_failed(void) {
    if (ready_deadline - began > (uint64_t)settings.ready_timeout_ms * MS)
        line_text(WIRE_NOTE, "%cnot ready within %d ms, made %llu ms since this machine is slow", 0,
                  settings.ready_timeout_ms, (unsigned long long)(ready_deadline - began) / MS);
    else
        line_text(WIRE_NOTE, "%cnot ready within %d ms", 0, settings.ready_timeout_ms);
    stop();
}

void exercise_start(void) {
    if (!settings.exercise)
        return;
    began = now_ns();
    ready_deadline = began + (uint64_t)settings.ready_timeout_ms * MS;
    state = WAITING;
    job.step = &settings.ready;
    job.number = READY;
    if (settings.ready.kind != STEP_EXIT)
        job_start(READY, &settings.ready, ready_deadline);
}

void exercise_go(void) {
    if (state == HOLDING)
        stop();
    else if (state == WAITING && settings.ready.kind == STEP_EXIT && settings.hold) {
        is_ready();
        settle();
    }
}

static void ready_tried(bool right) {
    if (right) {
        is_ready();
        job_report_verdict();
        settle();
        return;
    }
    uint64_t now = now_ns(), wait = (now - began) / 20;
    next_try = now + (wait < 10 * MS ? 10 * MS : wait > 1000 * MS ? 1000 * MS : wait);
    state = PAUSED;
}

static void command_ended(int status) {
    static char why[300];
    job.answer.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    job.answer.contains = job.match.found;
    answer_end(&job.answer);
    struct step judged = *job.step;
    if (judged.exit_code < 0 && job.number == READY)
        judged.exit_code = 0;
    if (job.killed)
        job.answer.error = "the command did not end in time";
    bool right = verdict_add(&job.verdict, &judged, &job.answer);
    if (!right && job.last_words[0] != '\0' && job.verdict.done == job.verdict.right + 1) {
        snprintf(why, sizeof why, "%.90s: %.100s", job.verdict.why, job.last_words);
        memcpy(job.verdict.why, why, sizeof job.verdict.why - 1);
    }
    if (job.number == READY)
        ready_tried(right);
    else if (job.verdict.done < job.step->repeat && !job.killed)
        job_again();
    else {
        job_report_verdict();
        job_report_errors();
        load_next();
    }
}

static void client_ended(int status) {
    bool said = job.said_length > 0 && WIFEXITED(status) && WEXITSTATUS(status) <= 1;
    bool right = said && WEXITSTATUS(status) == 0;
    if (job.number == READY && right) {
        is_ready();
        job_report(job.said, job.said_length);
        settle();
        return;
    }
    if (job.number == READY && (said || job.killed) && now_ns() >= ready_deadline && more_to_get_ready()) {
        job_start(READY, &settings.ready, ready_deadline);
        return;
    }
    if (said)
        job_report(job.said, job.said_length);
    else
        job_report_fault(job.killed ? "the client did not end in time"
                                    : "the client failed (is /.vmtailor/client there?)");
    if (job.number == READY)
        ready_failed();
    else
        load_next();
}

static void judge(int status) {
    if (job.tool)
        client_ended(status);
    else
        command_ended(status);
}

/* With PID 1 the kernel kills all that is in its namespace, and PID 1 is reaped last: then its end is why. */
static bool killed_with_others(int status) {
    return settings.pid_one && !job.killed && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

bool exercise_exit(pid_t pid, int status) {
    if (pid != job.pid || job.pid <= 0)
        return false;
    job_finish();
    if (state != WAITING && state != LOADING)
        return true;
    if (killed_with_others(status)) {
        held_status = status;
        held_until = now_ns() + PATIENCE;
    } else
        judge(status);
    return true;
}

static uint64_t earlier(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

uint64_t exercise_advance(void) {
    uint64_t now = now_ns();
    if (held_until > now)
        return held_until;
    if (held_until > 0) {
        held_until = 0;
        judge(held_status);
    }
    switch (state) {
    case OFF:
    case HOLDING:
        return UINT64_MAX;
    case WAITING:
    case PAUSED:
        if (now >= ready_deadline && !(job.tool && job.pid > 0 && now < job.deadline) && !more_to_get_ready()) {
            job_kill();
            if (!job.tool && settings.ready.kind == STEP_COMMAND && job.verdict.done > 0)
                job_report_verdict();
            else
                job_report_fault(settings.ready.kind == STEP_EXIT ? "it did not end in time"
                                                                  : "it did not become ready in time");
            ready_failed();
            return stop_deadline;
        }
        if (state == PAUSED && now >= next_try) {
            state = WAITING;
            job_start(READY, &settings.ready, ready_deadline);
        }
        if (state == PAUSED)
            return earlier(next_try, ready_deadline);
        if (job.pid > 0 && now >= job.deadline && !job.killed)
            job_late();
        return job.pid > 0 && !job.killed ? earlier(job.deadline, now < ready_deadline ? ready_deadline : job.deadline)
               : now < ready_deadline     ? ready_deadline
                                          : UINT64_MAX;
    case SETTLING:
        if (now >= next_look)
            look();
        return state == SETTLING ? next_look : now;
    case LOADING:
        if (job.pid < 0) {
            job_finish();
            job_report_fault("it could not be started");
            load_next();
            return now;
        }
        if (now >= job.deadline && !job.killed)
            job_late();
        return job.killed ? UINT64_MAX : job.deadline;
    case STOPPING:
        if (now < stop_deadline || more_time(stop_began, (uint64_t)settings.stop_timeout_ms, &stop_deadline))
            return stop_deadline;
        line_note("", "still running %llu ms after signal %d: killed",
                  (unsigned long long)(stop_deadline - stop_began) / MS, settings.stop_signal);
        entry_signal(SIGKILL);
        state = OFF;
        return UINT64_MAX;
    }
    return UINT64_MAX;
}

void exercise_entry_ended(int exit_code) {
    (void)exit_code;
    held_until = 0;
    if (state == WAITING && settings.ready.kind == STEP_EXIT) {
        is_ready();
        memory_account();
    } else if (state != OFF && state != STOPPING) {
        bool loaded = settings.step_count > 0 || settings.hold;
        if (state == SETTLING && settings.step_count > 0) {
            job.number = 0;
            job.step = &settings.steps[0];
        }
        job_kill();
        job_report_fault(!ready   ? "the entry point ended before it was ready"
                         : loaded ? "the entry point ended during the load"
                                  : "the entry point ended by itself once it was ready");
    }
    state = OFF;
}
