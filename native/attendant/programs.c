/* SPDX-License-Identifier: Apache-2.0 */
#include "attendant/programs.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "init/base/power_off.h"
#include "init/container/child.h"
#include "init/settings/settings.h"

#define CANNOT_EXECUTE 126
#define NOT_FOUND 127

/* What root has when it logs in to any system. */
static char *environment[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root",
                              "LC_ALL=C", NULL};

static int client = -1, sampler = -1;

static int held(const char *path) {
    int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0)
        fatal("", "open(%s): %s", path, strerror(errno));
    return fd;
}

void programs_hold(void) {
    client = held("/client");
    if (settings.sample_ms > 0)
        sampler = held("/sampler");
}

static void reset_signals(void) {
    sigset_t none;
    sigemptyset(&none);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGCHLD, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* In the child. */
_Noreturn static void become(char **argv) {
    int error = ENOENT;
    if (strchr(argv[0], '/') != NULL) {
        execve(argv[0], argv, environment);
        error = errno;
    }
    for (const char *search = strchr(argv[0], '/') == NULL ? environment[0] + 5 : ""; *search != '\0';) {
        char path[4096];
        size_t length = strcspn(search, ":");
        snprintf(path, sizeof path, "%.*s/%s", (int)length, search, argv[0]);
        execve(path, argv, environment);
        if (errno != ENOENT && errno != ENOTDIR)
            error = errno;
        search += length + (search[length] == ':');
    }
    dprintf(2, "execve(%s): %s\n", argv[0], strerror(error));
    _exit(error == ENOENT ? NOT_FOUND : CANNOT_EXECUTE);
}

pid_t child_start(struct list *argv, struct stdio stdio, bool mark, int *status_fd) {
    (void)mark;
    (void)status_fd;
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    reset_signals();
    setsid();
    if (dup2(stdio.in, 0) < 0 || dup2(stdio.out, 1) < 0 || dup2(stdio.err, 2) < 0 || chdir("/") != 0)
        _exit(CANNOT_EXECUTE);
    become(argv->items);
}

pid_t child_tool(char *const argv[], int out) {
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    reset_signals();
    dup2(out, 1);
    bool samples = strcmp(argv[1], "sample") == 0;
    /* Service managers spare, in their hour of change, a process whose name begins so. */
    char *sampled[] = {"@sampler", argv[1], samples ? argv[2] : NULL, samples ? argv[3] : NULL, NULL};
    syscall(SYS_execveat, samples ? sampler : client, "", samples ? sampled : argv, (char *[]){NULL}, AT_EMPTY_PATH);
    _exit(NOT_FOUND);
}

void child_kill(pid_t pid, bool session) {
    kill(session ? -pid : pid, SIGKILL);
}
