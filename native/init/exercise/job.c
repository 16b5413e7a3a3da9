/* SPDX-License-Identifier: Apache-2.0 */
#include "init/exercise/job.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/large.h"
#include "init/base/event_loop.h"
#include "init/base/power_off.h"
#include "init/base/serial_line.h"
#include "init/container/child.h"

#define LONGEST_RECORD 1024
#define LONGEST_LOADS (1 << 20) /* a sweep of 64 stages takes less */

struct job job;
unsigned job_stretch = 100;

static uint64_t stretched(uint64_t ms) {
    return ms * job_stretch / 100;
}

static void set_limit(uint64_t ms) {
    job.since = now_ns();
    job.limit_ms = ms;
    job.deadline = job.since + stretched(ms) * MS;
}

/* --- results --- */

void job_report(const char *items, size_t length) {
    char payload[WIRE_PAYLOAD];
    const char *kinds[] = {"none", "http", "tcp", "command", "exit", "load", "load"};
    int held = snprintf(payload, sizeof payload, "step=%d%ckind=%s%cns=%llu%c", job.number, 0, kinds[job.step->kind], 0,
                        (unsigned long long)(now_ns() - job.began), 0);
    if (length > sizeof payload - (size_t)held)
        length = sizeof payload - (size_t)held;
    memcpy(payload + held, items, length);
    line_send(WIRE_RESULT, payload, (size_t)held + length);
}

void job_report_verdict(void) {
    char items[1900];
    job_report(items, verdict_print(&job.verdict, items, sizeof items));
}

void job_report_errors(void) {
    char text[sizeof job.errors + 32];
    if (job.errors_length == 0)
        return;
    int length = snprintf(text, sizeof text, "step %d\n%.*s\n", job.number, (int)job.errors_length, job.errors);
    line_file("step-errors", text, (size_t)length);
}

void job_report_fault(const char *why) {
    char items[300];
    int length = snprintf(items, sizeof items, "done=1%cright=0%csame=1%cwhy=%.200s%c", 0, 0, 0, why, 0);
    job_report(items, (size_t)length);
}

void job_report_loads(void) {
    for (size_t at = 0; at < job.record_length; at += LONGEST_RECORD) {
        size_t left = job.record_length - at;
        line_file("load", job.record + at, left < LONGEST_RECORD ? left : LONGEST_RECORD);
    }
    free(job.record);
    job.record = NULL;
    job.record_length = 0;
}

/* --- jobs --- */

/* A load tells of itself up to a NUL. Returns how many bytes of `data` belong to that. */
static size_t take_record(const char *data, size_t length) {
    const char *end = job.recorded ? data : memchr(data, '\0', length);
    size_t part = end == NULL ? length : (size_t)(end - data);
    size_t taken = end == NULL || job.recorded ? part : part + 1;
    size_t room = LONGEST_LOADS - job.record_length;
    job.recorded |= end != NULL;
    part = part < room ? part : room;
    char *more = part > 0 ? realloc(job.record, job.record_length + part) : NULL;
    if (more != NULL) {
        job.record = more;
        memcpy(job.record + job.record_length, data, part);
        job.record_length += part;
    }
    return taken;
}

static void take_out(struct watch *watch, short events) {
    (void)events;
    char data[4096];
    ssize_t got = read(watch->fd, data, sizeof data);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        loop_remove(watch);
        return;
    }
    size_t length = (size_t)got;
    if (watch == &job.err) {
        size_t part = length < sizeof job.last_words - 1 ? length : sizeof job.last_words - 1;
        memcpy(job.last_words, data + length - part, part);
        while (part > 0 && job.last_words[part - 1] == '\n')
            part--;
        job.last_words[part] = '\0';
        size_t room = sizeof job.errors - job.errors_length;
        part = length < room ? length : room;
        memcpy(job.errors + job.errors_length, data, part);
        job.errors_length += part;
    } else if (job.tool) {
        size_t taken = job.step->kind >= STEP_LOAD ? take_record(data, length) : 0;
        size_t room = sizeof job.said - job.said_length;
        size_t part = length - taken < room ? length - taken : room;
        memcpy(job.said + job.said_length, data + taken, part);
        job.said_length += part;
    } else {
        answer_add(&job.answer, data, length);
        match_add(&job.match, data, length);
    }
}

static bool open_pipe(struct watch *watch, int *write_end) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return false;
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    loop_add(watch, ends[0], POLLIN, take_out);
    *write_end = ends[1];
    return true;
}

/* Behind one another, so that few pages are written: each is copied after the fork. */
LARGE char job_records[8 * LONGEST_RECORD];

static void start_tool(char *const argv[]) {
    int out = -1;
    job.tool = true;
    job.pid = open_pipe(&job.out, &out) ? child_tool(argv, out) : -1;
    if (out >= 0)
        close(out);
}

/* A client that starts the container's commands is as they are: of its user, in its environment. */
static void start_as_container(struct list *argv) {
    int out = -1;
    job.tool = true;
    job.pid = -1;
    if (open_pipe(&job.out, &out))
        job.pid = child_start(argv, (struct stdio){out, out, out, false}, false, NULL);
    if (out >= 0)
        close(out);
}

/* The words of a load are its client's. */
static void start_load(void) {
    const struct list *words = &job.step->argv;
    char **argv = calloc(words->count + 2, sizeof *argv);
    if (argv == NULL)
        fatal("", "no memory");
    argv[0] = "/.vmtailor/load-client";
    memcpy(argv + 1, words->items, words->count * sizeof *argv);
    job.recorded = false;
    if (job.step->kind == STEP_COMMANDS)
        start_as_container(&(struct list){.items = argv, .count = words->count + 1});
    else
        start_tool(argv);
    free(argv);
}

static void start_client(bool until, int timeout_ms) {
    static char timeout[16];
    const struct step *step = job.step;
    char *argv[16] = {"/.vmtailor/client", until ? "until" : "count", timeout};
    int count = 3;
    uint64_t most = stretched((unsigned)step->timeout_ms);
    snprintf(timeout, sizeof timeout, "%d", timeout_ms);
    const struct {
        const char *key, *text;
        int number; /* used where there is no text; -1: nothing to say */
    } says[] = {
        {until ? "ready" : "step", step->kind == STEP_TCP ? "tcp" : "http", -1},
        {".port", NULL, step->port},
        {".repeat", NULL, step->repeat},
        {".timeout-ms", NULL, most > INT_MAX ? INT_MAX : (int)most},
        {".method", step->method, -1},
        {".path", step->path, -1},
        {".status", NULL, step->status},
        {".sha256", step->sha256, -1},
    };
    char *record = job_records;
    for (size_t i = 0; i < sizeof says / sizeof *says; i++) {
        if (says[i].text != NULL)
            snprintf(record, LONGEST_RECORD, "%s %s", says[i].key, says[i].text);
        else if (says[i].number >= 0)
            snprintf(record, LONGEST_RECORD, "%s %d", says[i].key, says[i].number);
        else
            continue;
        argv[count++] = record;
        record += strlen(record) + 1;
    }
    char *contains = step->contains != NULL ? malloc(strlen(step->contains) + 16) : NULL;
    if (contains != NULL) {
        sprintf(contains, ".contains %s", step->contains);
        argv[count++] = contains;
    }
    argv[count] = NULL;
    start_tool(argv);
    free(contains);
}

void job_again(void) {
    int out, err, in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    job.tool = false;
    if (in < 0 || !open_pipe(&job.out, &out) || !open_pipe(&job.err, &err))
        fatal("", "pipe2(command of the exercise): %s", strerror(errno));
    answer_start(&job.answer);
    match_again(&job.match);
    job.last_words[0] = '\0';
    set_limit((uint64_t)job.step->timeout_ms);
    struct list argv = job.step->argv;
    job.pid = child_start(&argv, (struct stdio){in, out, err, false}, false, NULL);
    close(in);
    close(out);
    close(err);
}

void job_start(int number, const struct step *step, uint64_t ready_deadline) {
    job.number = number;
    job.step = step;
    job.began = now_ns();
    job.killed = false;
    job.said_length = job.errors_length = 0;
    job.out.fd = job.err.fd = -1;
    verdict_start(&job.verdict);
    free(job.match.back);
    if (!match_start(&job.match, step->contains))
        fatal("", "no memory");
    if (step->kind == STEP_COMMAND) {
        job_again();
        return;
    }
    uint64_t most = number == READY ? (ready_deadline - job.began) / MS
                                    : stretched((uint64_t)step->timeout_ms * (unsigned)step->repeat);
    int timeout_ms = most > 86400000u ? 86400000 : (int)most;
    job.since = job.began;
    job.limit_ms = (uint64_t)timeout_ms + 5000;
    job.deadline = job.began + job.limit_ms * MS;
    if (step->kind >= STEP_LOAD)
        start_load();
    else
        start_client(number == READY, timeout_ms);
}

void job_kill(void) {
    if (job.pid > 0)
        child_kill(job.pid, job.step->kind == STEP_COMMAND || job.step->kind == STEP_COMMANDS);
    job.killed = true;
}

static void finish_stream(struct watch *watch) {
    /* What is in the pipe is read; a process left behind by a command may hold it open for ever. */
    int waiting = watch->fd;
    while (watch->fd >= 0) {
        struct pollfd more = {.fd = waiting, .events = POLLIN};
        if (poll(&more, 1, 0) <= 0)
            loop_remove(watch);
        else
            take_out(watch, more.revents);
    }
}

void job_finish(void) {
    job.pid = 0;
    finish_stream(&job.out);
    finish_stream(&job.err);
}
