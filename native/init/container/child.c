/* SPDX-License-Identifier: Apache-2.0 */
#include "init/container/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "init/base/power_off.h"
#include "init/container/program.h"
#include "init/container/surroundings.h"
#include "init/container/traced.h"
#include "init/machine/capabilities.h"
#include "init/machine/root.h"
#include "init/settings/settings.h"

void child_prepare(void) {
    const char *wrong = program_prepare();
    if (wrong != NULL)
        fatal("", "user '%s': %s", settings.user, wrong);
    for (size_t i = 0; i < settings.volumes.count; i++)
        make_directories(settings.volumes.items[i]);
    surroundings_read_only();
}

/* The hard limit of open files that engines give; the kernel's own is 4096. */
#define MOST_FILES 524288

static void set_limits(void) {
    /* The kernel's own is made of the machine's memory. */
    setrlimit(RLIMIT_NPROC, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY});
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_max < MOST_FILES) {
        files.rlim_max = MOST_FILES;
        setrlimit(RLIMIT_NOFILE, &files); /* left as it is where the kernel's limit is lower */
    }
}

/* What the run says of its limits, and of who must go first where there is no memory. */
static void set_asked(const struct surroundings *more, int status_fd) {
    for (size_t i = 0; i < more->limits.count; i++) {
        const char *text = more->limits.items[i];
        char *after_resource, *after_soft, *end;
        int resource = (int)strtoul(text, &after_resource, 10);
        unsigned long long soft = strtoull(after_resource, &after_soft, 10), hard = strtoull(after_soft, &end, 10);
        if (after_resource == text || after_soft == after_resource || end == after_soft)
            program_give_up(status_fd, CANNOT_EXECUTE, EINVAL, "setrlimit(%s)", text);
        if (setrlimit(resource, &(struct rlimit){(rlim_t)soft, (rlim_t)hard}) != 0)
            program_give_up(status_fd, CANNOT_EXECUTE, errno, "setrlimit(%s)", text);
    }
    if (more->oom == NULL)
        return;
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, more->oom, strlen(more->oom)) < 0)
        program_give_up(status_fd, CANNOT_EXECUTE, errno, "oom_score_adj(%s)", more->oom);
    close(fd);
}

static void reset_signals(void) {
    sigset_t none;
    sigemptyset(&none);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGCHLD, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static void start_tracer(const struct handover *handover, bool mark) {
    close(handover->number[1]);
    close(handover->attached[0]);
    pid_t number = traced_number(handover);
    if (number > 0 && fork() == 0) {
        reset_signals();
        setsid();
        traced_attach(number, mark, handover->attached[1]);
    }
    close(handover->number[0]);
    close(handover->attached[1]); /* without a tracer, the child reads the end of it, and gives up */
}

pid_t child_start(struct list *argv, struct stdio stdio, bool mark, int *status_fd) {
    int status[2];
    struct handover handover;
    bool traced = settings.trace.count > 0;
    if (pipe2(status, O_CLOEXEC) != 0)
        return -1;
    if (traced && !traced_prepare(&handover)) {
        close(status[0]);
        close(status[1]);
        return -1;
    }
    pid_t pid = fork();
    if (pid == 0) {
        reset_signals();
        set_limits();
        setsid();
        if (stdio.terminal)
            ioctl(stdio.in, TIOCSCTTY, 0);
        if (dup2(stdio.in, 0) < 0 || dup2(stdio.out, 1) < 0 || dup2(stdio.err, 2) < 0)
            program_give_up(status[1], CANNOT_EXECUTE, errno, "dup2%s", "");
        if (mark && settings.pid_one && getpid() == 1 && !root_proc_of_namespace())
            program_give_up(status[1], CANNOT_EXECUTE, errno, "mount(%s)", "/proc");
        if (settings.surroundings != NULL)
            set_asked(settings.surroundings, status[1]);
        if (traced)
            traced_become(argv, status[1], mark, &handover);
        program_become(argv, status[1], mark);
    }
    close(status[1]);
    if (traced)
        start_tracer(&handover, mark);
    if (pid < 0 || status_fd == NULL)
        close(status[0]);
    else
        *status_fd = status[0];
    return pid;
}

/* Our own program, as root of the container; it keeps the one capability by which none of the container traces it. */
static _Noreturn void become_builtin(const struct order *order, int status_fd) {
    char *words[] = {"/.vmtailor/builtin", (char *)order->builtin, (char *)(order->path != NULL ? order->path : ""),
                     order->follow ? "1" : "0", NULL};
    execve(words[0], words, (char *[]){NULL});
    program_give_up(status_fd, CANNOT_EXECUTE, errno, "execve(%s)", words[0]);
}

pid_t child_further(struct order *order, struct stdio stdio, int *status_fd) {
    int status[2];
    if (pipe2(status, O_CLOEXEC) != 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0) {
        reset_signals();
        set_limits();
        setsid();
        if (stdio.terminal)
            ioctl(stdio.in, TIOCSCTTY, 0);
        if (dup2(stdio.in, 0) < 0 || dup2(stdio.out, 1) < 0 || dup2(stdio.err, 2) < 0)
            program_give_up(status[1], CANNOT_EXECUTE, errno, "dup2%s", "");
        /* Where there is a tracer, init is not limited itself. */
        if (settings.trace.count > 0 && !capabilities_limit_traced())
            program_give_up(status[1], CANNOT_EXECUTE, errno, "prctl(%s)", "PR_CAPBSET_DROP");
        if (order->builtin != NULL)
            become_builtin(order, status[1]);
        if (settings.surroundings != NULL)
            set_asked(settings.surroundings, status[1]);
        const char *wrong = program_prepare_further(order);
        if (wrong != NULL)
            program_give_up(status[1], CANNOT_EXECUTE, 0, "%s", wrong);
        program_become(&order->argv, status[1], false);
    }
    close(status[1]);
    if (pid < 0)
        close(status[0]);
    else
        *status_fd = status[0];
    return pid;
}

pid_t child_tool(char *const argv[], int out) {
    pid_t pid = fork();
    if (pid == 0) {
        reset_signals();
        dup2(out, 1);
        execve(argv[0], argv, (char *[]){NULL});
        _exit(NOT_FOUND);
    }
    return pid;
}

void child_kill(pid_t pid, bool session) {
    kill(session ? -pid : pid, SIGKILL);
}
