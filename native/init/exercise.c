/* SPDX-License-Identifier: Apache-2.0 */
/* The exercise: wait until ready, drive the load, stop. One job at a time: a client, or a command in the container. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "init.h"
#include "verdict.h"

#define MS 1000000u
#define READY (-1) /* the step number of the ready check */

static enum { OFF, WAITING, PAUSED, LOADING, HOLDING, STOPPING } state = OFF;
static bool ready;
static uint64_t ready_deadline, next_try, stop_deadline;
static uint64_t began;

static struct {
    int number; /* of the step */
    const struct step *step;
    bool tool; /* the client: it judges by itself, `said` is its verdict */
    pid_t pid;
    uint64_t began, deadline;
    bool killed;
    struct watch out, err;
    struct verdict verdict;
    struct answer answer;
    struct match match;
    char said[1900];
    size_t said_length;
    char last_words[200];
} job;

/* --- results --- */

static void report(const char *items, size_t length) {
    char payload[WIRE_PAYLOAD];
    const char *kinds[] = {"none", "http", "tcp", "command", "exit"};
    int held = snprintf(payload, sizeof payload, "step=%d%ckind=%s%cns=%llu%c", job.number, 0, kinds[job.step->kind], 0,
                        (unsigned long long)(now_ns() - job.began), 0);
    if (length > sizeof payload - (size_t)held)
        length = sizeof payload - (size_t)held;
    memcpy(payload + held, items, length);
    port_send(WIRE_RESULT, payload, (size_t)held + length);
}

static void report_verdict(void) {
    char items[1900];
    report(items, verdict_print(&job.verdict, items, sizeof items));
}

static void report_fault(const char *why) {
    char items[300];
    int length = snprintf(items, sizeof items, "done=1%cright=0%csame=1%cwhy=%.200s%c", 0, 0, 0, why, 0);
    report(items, (size_t)length);
}

/* --- jobs --- */

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
    } else if (job.tool) {
        size_t part = length < sizeof job.said - job.said_length ? length : sizeof job.said - job.said_length;
        memcpy(job.said + job.said_length, data, part);
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

static void start_client(bool until, int timeout_ms) {
    static char records[8][1024], timeout[16];
    const struct step *step = job.step;
    char *argv[16] = {"/.vmtailor/client", until ? "until" : "count", timeout};
    int count = 3, out;
    snprintf(timeout, sizeof timeout, "%d", timeout_ms);
    const struct {
        const char *key, *text;
        int number; /* used where there is no text; -1: nothing to say */
    } says[] = {
        {until ? "ready" : "step", step->kind == STEP_TCP ? "tcp" : "http", -1},
        {".port", NULL, step->port},
        {".repeat", NULL, step->repeat},
        {".timeout-ms", NULL, step->timeout_ms},
        {".method", step->method, -1},
        {".path", step->path, -1},
        {".status", NULL, step->status},
        {".sha256", step->sha256, -1},
    };
    for (size_t i = 0; i < sizeof says / sizeof *says; i++) {
        if (says[i].text != NULL)
            snprintf(records[i], sizeof *records, "%s %s", says[i].key, says[i].text);
        else if (says[i].number >= 0)
            snprintf(records[i], sizeof *records, "%s %d", says[i].key, says[i].number);
        else
            continue;
        argv[count++] = records[i];
    }
    char *contains = step->contains != NULL ? malloc(strlen(step->contains) + 16) : NULL;
    if (contains != NULL) {
        sprintf(contains, ".contains %s", step->contains);
        argv[count++] = contains;
    }
    argv[count] = NULL;
    job.tool = true;
    job.pid = open_pipe(&job.out, &out) ? child_tool(argv, out) : -1;
    close(out);
    free(contains);
}

static void start_command(void) {
    int out, err, in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    job.tool = false;
    if (in < 0 || !open_pipe(&job.out, &out) || !open_pipe(&job.err, &err))
        fatal("", "pipe2(command of the exercise): %s", strerror(errno));
    answer_start(&job.answer);
    match_again(&job.match);
    job.last_words[0] = '\0';
    job.deadline = now_ns() + (uint64_t)job.step->timeout_ms * MS;
    struct list argv = job.step->argv;
    job.pid = child_start(&argv, (struct stdio){in, out, err, false}, false, NULL);
    close(in);
    close(out);
    close(err);
}

static void start_job(int number, const struct step *step) {
    job.number = number;
    job.step = step;
    job.began = now_ns();
    job.killed = false;
    job.said_length = 0;
    job.out.fd = job.err.fd = -1;
    verdict_start(&job.verdict);
    free(job.match.back);
    if (!match_start(&job.match, step->contains))
        fatal("", "no memory");
    if (step->kind == STEP_COMMAND) {
        start_command();
        return;
    }
    uint64_t most =
        number == READY ? (ready_deadline - job.began) / MS : (uint64_t)step->timeout_ms * (unsigned)step->repeat;
    int timeout_ms = most > 86400000u ? 86400000 : (int)most;
    job.deadline = job.began + ((uint64_t)timeout_ms + 5000) * MS;
    start_client(number == READY, timeout_ms);
}

static void kill_job(void) {
    if (job.pid > 0)
        kill(job.step->kind == STEP_COMMAND ? -job.pid : job.pid, SIGKILL);
    job.killed = true;
}

/* --- the way through --- */

static void stop(void) {
    port_mark("stop", vt_mark_stop());
    tracelog_mark("stop");
    state = STOPPING;
    stop_deadline = now_ns() + (uint64_t)told.stop_timeout_ms * MS;
    entry_signal(told.stop_signal);
}

static void load_done(void) {
    port_mark("load_end", vt_mark_load_end());
    tracelog_mark("load_end");
    if (told.hold)
        state = HOLDING;
    else
        stop();
}

static void load_next(void) {
    int next = job.number + 1;
    if ((size_t)next < told.step_count)
        start_job(next, &told.steps[next]);
    else
        load_done();
}

static void is_ready(void) {
    ready = true;
    port_mark("ready", vt_mark_ready());
    tracelog_mark("ready");
}

static void load_start(void) {
    state = LOADING;
    port_mark("load", vt_mark_load());
    tracelog_mark("load");
    job.number = -1;
    load_next();
}

static void ready_failed(void) {
    port_text(WIRE_NOTE, "%cnot ready within %d ms", 0, told.ready_timeout_ms);
    stop();
}

void exercise_start(void) {
    if (!told.exercise)
        return;
    began = now_ns();
    ready_deadline = began + (uint64_t)told.ready_timeout_ms * MS;
    state = WAITING;
    job.step = &told.ready;
    job.number = READY;
    if (told.ready.kind != STEP_EXIT)
        start_job(READY, &told.ready);
}

void exercise_go(void) {
    if (state == HOLDING)
        stop();
}

static void ready_tried(bool right) {
    if (right) {
        is_ready();
        report_verdict();
        load_start();
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
        start_command();
    else {
        report_verdict();
        load_next();
    }
}

static void client_ended(int status) {
    bool said = job.said_length > 0 && WIFEXITED(status) && WEXITSTATUS(status) <= 1;
    bool right = said && WEXITSTATUS(status) == 0;
    if (job.number == READY && right) {
        is_ready();
        report(job.said, job.said_length);
        load_start();
        return;
    }
    if (said)
        report(job.said, job.said_length);
    else
        report_fault(job.killed ? "the client did not end in time" : "the client failed (is /.vmtailor/client there?)");
    if (job.number == READY)
        ready_failed();
    else
        load_next();
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

bool exercise_exit(pid_t pid, int status) {
    if (pid != job.pid || job.pid <= 0)
        return false;
    job.pid = 0;
    finish_stream(&job.out);
    finish_stream(&job.err);
    if (state != WAITING && state != LOADING)
        return true;
    if (job.tool)
        client_ended(status);
    else
        command_ended(status);
    return true;
}

static uint64_t earlier(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

uint64_t exercise_advance(void) {
    uint64_t now = now_ns();
    switch (state) {
    case OFF:
    case HOLDING:
        return UINT64_MAX;
    case WAITING:
    case PAUSED:
        if (now >= ready_deadline && !(job.tool && job.pid > 0 && now < job.deadline)) {
            kill_job();
            if (!job.tool && told.ready.kind == STEP_COMMAND && job.verdict.done > 0)
                report_verdict();
            else
                report_fault(told.ready.kind == STEP_EXIT ? "it did not end in time"
                                                          : "it did not become ready in time");
            ready_failed();
            return stop_deadline;
        }
        if (state == PAUSED && now >= next_try) {
            state = WAITING;
            start_job(READY, &told.ready);
        }
        if (state == PAUSED)
            return earlier(next_try, ready_deadline);
        if (job.pid > 0 && now >= job.deadline && !job.killed)
            kill_job();
        return job.pid > 0 && !job.killed ? earlier(job.deadline, now < ready_deadline ? ready_deadline : job.deadline)
               : now < ready_deadline     ? ready_deadline
                                          : UINT64_MAX;
    case LOADING:
        if (now >= job.deadline && !job.killed)
            kill_job();
        return job.killed ? UINT64_MAX : job.deadline;
    case STOPPING:
        if (now < stop_deadline)
            return stop_deadline;
        port_note("", "still running %d ms after signal %d: killed", told.stop_timeout_ms, told.stop_signal);
        entry_signal(SIGKILL);
        state = OFF;
        return UINT64_MAX;
    }
    return UINT64_MAX;
}

void exercise_entry_ended(int exit_code) {
    (void)exit_code;
    if (state == WAITING && told.ready.kind == STEP_EXIT) {
        is_ready();
    } else if (state == WAITING || state == PAUSED || state == LOADING || state == HOLDING) {
        kill_job();
        report_fault(ready ? "the entry point ended during the load" : "the entry point ended before it was ready");
    }
    state = OFF;
}
