/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drives init's exercise without being PID 1. The exercise and its jobs are init's own, with real pipes; time,
 * processes, the serial line and the machine's rest are played here. RECORDS is what init is told, as on the run
 * volume; standard input is what happens, one thing a line; standard output is what the exercise does about it, each
 * with its time in ms.
 *
 *     exercise RECORDS < EVENTS
 *
 *     wait MS         nothing happens for so long
 *     out TEXT        the job writes it (\n a line feed, \0 a NUL)
 *     err TEXT        the same on standard error
 *     exit STATUS     the job ends
 *     die SIGNAL      the job ends so
 *     leave STATUS    the job ends, and leaves a process behind that holds its pipes open
 *     orphan          some other process of the container's ends
 *     entry STATUS    the entry point ends
 *     go              the host has done its part
 *     deaf            the entry point is PID 1, and handles no signal
 *     busy LOOKS      the machine does not rest for the next LOOKS looks
 *     full            no further process can be started
 *     slow PERCENT    the machine takes so much of the usual time
 */
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/records.h"
#include "common/wire.h"
#include "init/base/event_loop.h"
#include "init/base/power_off.h"
#include "init/base/read_file.h"
#include "init/base/serial_line.h"
#include "init/container/child.h"
#include "init/container/entry_point.h"
#include "init/container/slowdown.h"
#include "init/container/trace_log.h"
#include "init/exercise/exercise.h"
#include "init/machine/at_rest.h"
#include "init/machine/memory.h"
#include "init/settings/settings.h"

#define MS 1000000u
#define MOST_RECORDS (1 << 20)
#define MOST_TURNS 100000 /* without time going by: the exercise goes round in circles */
#define SPINS 4

struct settings settings;

static uint64_t now = 1000 * (uint64_t)MS; /* a boot has taken a second until now */

/* --- what is done, told --- */

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *format, ...) {
    va_list args;
    va_start(args, format);
    printf("%llu ", (unsigned long long)(now / MS - 1000));
    vprintf(format, args);
    printf("\n");
    va_end(args);
}

/* On one line, NULs as '|'. */
static void say_bytes(const char *what, const char *data, size_t length) {
    char text[2 * WIRE_PAYLOAD + 1];
    size_t held = 0;
    for (size_t i = 0; i < length && held < sizeof text - 2; i++) {
        if (data[i] == '\n')
            text[held++] = '\\';
        text[held++] = data[i] == '\n' ? 'n' : data[i] == '\0' ? '|' : data[i];
    }
    text[held] = '\0';
    say("%s %s", what, text);
}

/* --- time --- */

uint64_t now_ns(void) {
    return now;
}

uint64_t real_ns(void) {
    return now;
}

/* --- the serial line --- */

void line_send(char type, const void *payload, size_t length) {
    say_bytes(type == WIRE_RESULT ? "result" : type == WIRE_NOTE ? "note" : "frame", payload, length);
}

void line_file(const char *name, const void *data, size_t length) {
    char what[100];
    snprintf(what, sizeof what, "file %s", name);
    say_bytes(what, data, length);
}

void line_text(char type, const char *format, ...) {
    char text[1024];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    line_send(type, text, (size_t)length);
}

void line_note(const char *symbol, const char *format, ...) {
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    say("note %s|%s", symbol, text);
}

void line_mark(const char *name, struct stamp stamp) {
    (void)stamp;
    say("mark %s", name);
}

void line_flush(void) {
    say("flush");
}

void trace_log_mark(const char *name) {
    say("trace %s", name);
}

_Noreturn void fatal(const char *symbol, const char *format, ...) {
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    say("fatal %s|%s", symbol, text);
    exit(0);
}

/* --- processes: one job at a time, known by the ends of the pipes that it writes to --- */

static pid_t last_pid = 100;
static int job_out = -1, job_err = -1;
static bool full;

static pid_t started(const char *what, char *const words[], int out, int err) {
    char line[4096] = "";
    for (size_t i = 0; words[i] != NULL; i++) {
        strncat(line, i > 0 ? "|" : "", sizeof line - strlen(line) - 1);
        strncat(line, words[i], sizeof line - strlen(line) - 1);
    }
    say("%s %s", what, line);
    if (full) {
        errno = EAGAIN;
        return -1;
    }
    job_out = dup(out);
    job_err = err >= 0 ? dup(err) : -1;
    return ++last_pid;
}

pid_t child_start(struct list *argv, struct stdio stdio, bool mark, int *status_fd) {
    if (mark || status_fd != NULL || stdio.terminal)
        say("a command is no entry point");
    return started("command", argv->items, stdio.out, stdio.err);
}

pid_t child_tool(char *const argv[], int out) {
    return started("client", argv + 1, out, -1);
}

void child_kill(pid_t pid, bool session) {
    say("kill %s%s", pid == last_pid ? "job" : "somebody else", session ? " and its session" : "");
}

void entry_signal(int number) {
    say("signal %d", number);
}

static bool deaf;

bool entry_heeds(int number) {
    (void)number;
    return !deaf;
}

/* --- the machine --- */

static int busy;

bool at_rest(void) {
    return busy == 0 || busy-- == 0;
}

static unsigned percent = 100;

unsigned slowdown(uint64_t since) {
    (void)since;
    return percent;
}

void memory_account(void) {
    say("memory");
}

/* --- waiting --- */

static struct watch *watches[8];

void loop_add(struct watch *watch, int fd, short events, void (*ready)(struct watch *watch, short events)) {
    size_t i = 0;
    *watch = (struct watch){.fd = fd, .events = events, .ready = ready};
    while (watches[i] != NULL && watches[i] != watch)
        i++;
    watches[i] = watch;
}

void loop_remove(struct watch *watch) {
    close(watch->fd);
    watch->fd = -1;
}

static void hear(void) {
    for (size_t i = 0; watches[i] != NULL; i++) {
        struct pollfd asked = {.fd = watches[i]->fd, .events = POLLIN};
        while (watches[i]->fd >= 0 && poll(&asked, 1, 0) > 0)
            watches[i]->ready(watches[i], asked.revents);
    }
}

/* As main does: what is due is done, until something happens at `end`. */
static void wait_until(uint64_t end) {
    for (int turns = 0;; turns++) {
        uint64_t due = exercise_advance();
        if (due > end)
            break;
        if (due > now)
            turns = 0;
        if (turns > MOST_TURNS) {
            say("spins");
            exit(SPINS);
        }
        now = due > now ? due : now;
    }
    now = end;
}

static void close_pipes(void) {
    if (job_out >= 0)
        close(job_out);
    if (job_err >= 0)
        close(job_err);
    job_out = job_err = -1;
}

static void job_ends(int status) {
    if (!exercise_exit(last_pid, status))
        say("nobody's");
}

static void job_writes(int fd, char *text) {
    size_t held = 0;
    for (const char *at = text; *at != '\0'; at++) {
        bool escaped = at[0] == '\\' && (at[1] == 'n' || at[1] == '0');
        text[held++] = !escaped ? *at : at[1] == 'n' ? '\n' : '\0';
        at += escaped;
    }
    if (write(fd, text, held) != (ssize_t)held)
        say("nobody reads");
    hear();
}

static void happens(const char *what, char *rest) {
    int number = atoi(rest);
    if (strcmp(what, "wait") == 0) {
        wait_until(now + (uint64_t)number * MS);
    } else if (strcmp(what, "out") == 0) {
        job_writes(job_out, rest);
    } else if (strcmp(what, "err") == 0) {
        job_writes(job_err, rest);
    } else if (strcmp(what, "exit") == 0) {
        close_pipes();
        job_ends(number << 8);
    } else if (strcmp(what, "die") == 0) {
        close_pipes();
        job_ends(number);
    } else if (strcmp(what, "leave") == 0) {
        int held[] = {job_out, job_err};
        job_ends(number << 8);
        close(held[0]);
        close(held[1]);
    } else if (strcmp(what, "orphan") == 0) {
        if (exercise_exit(7, 0))
            say("taken for the job");
    } else if (strcmp(what, "entry") == 0) {
        exercise_entry_ended(number);
    } else if (strcmp(what, "go") == 0) {
        exercise_go();
    } else if (strcmp(what, "deaf") == 0) {
        deaf = true;
    } else if (strcmp(what, "busy") == 0) {
        busy = number;
    } else if (strcmp(what, "slow") == 0) {
        percent = (unsigned)number;
    } else if (strcmp(what, "full") == 0) {
        full = true;
    } else {
        fprintf(stderr, "what is '%s'?\n", what);
        exit(2);
    }
    hear();
    wait_until(now);
}

int main(int argc, char **argv) {
    size_t length;
    char *text = argc == 2 ? read_file(argv[1], MOST_RECORDS, &length) : NULL;
    if (text == NULL) {
        fprintf(stderr, "use: exercise RECORDS < EVENTS\n");
        return 2;
    }
    settings_default(&settings);
    const char *wrong = settings_read(&settings, text, length);
    if (wrong != NULL) {
        fprintf(stderr, "records: %s\n", wrong);
        return 2;
    }
    exercise_start();
    wait_until(now);
    char line[4096];
    while (fgets(line, sizeof line, stdin) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *space = strchr(line, ' ');
        char *rest = space != NULL ? space + 1 : line + strlen(line);
        if (space != NULL)
            *space = '\0';
        happens(line, rest);
    }
    return 0;
}
