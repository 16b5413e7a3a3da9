/* SPDX-License-Identifier: Apache-2.0 */
#include "load-client/command.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static int nothing = -1, errors[2] = {-1, -1};
static sigset_t before; /* that were blocked when this program began: so they are for commands */
static char last_words[160];

static void note_end(int number) {
    (void)number; /* it ends the wait; the process is looked for there */
}

/* Where a program is, by PATH; as it was named where nothing is found. */
static const char *place_of(const char *name) {
    const char *search = strchr(name, '/') == NULL ? getenv("PATH") : NULL;
    while (search != NULL && *search != '\0') {
        size_t length = strcspn(search, ":");
        char *path = NULL;
        struct stat found;
        if (asprintf(&path, "%.*s%s%s", (int)length, search, length > 0 ? "/" : "", name) < 0)
            return name;
        if (stat(path, &found) == 0 && S_ISREG(found.st_mode) && access(path, X_OK) == 0)
            return path;
        free(path);
        search += length + (search[length] == ':');
    }
    return name;
}

bool command_prepare(struct plan *plan) {
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGCHLD);
    sigprocmask(SIG_BLOCK, &ends, &before);
    sigaction(SIGCHLD, &(struct sigaction){.sa_handler = note_end}, NULL);
    for (unsigned i = 0; i < plan->page_count; i++) {
        struct page *page = &plan->pages[i];
        page->program = place_of(page->words.items[0]);
    }
    nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (nothing < 0 || pipe2(errors, O_CLOEXEC) != 0)
        return false;
    fcntl(errors[0], F_SETFL, O_NONBLOCK);
    return true;
}

int command_errors(void) {
    return errors[0];
}

const sigset_t *command_signals(void) {
    return &before;
}

void command_take_errors(void) {
    char data[4096];
    ssize_t got = read(errors[0], data, sizeof data);
    if (got <= 0)
        return;
    while (got > 0 && data[got - 1] == '\n')
        got--;
    /* Programs that ran at once share the pipe: the last line is one program's. */
    size_t begin = (size_t)got;
    while (begin > 0 && data[begin - 1] != '\n')
        begin--;
    size_t line = (size_t)got - begin;
    size_t part = line < sizeof last_words ? line : sizeof last_words - 1;
    memcpy(last_words, data + got - part, part);
    last_words[part] = '\0';
}

/* The parent stands still until the program is executed, or cannot be: then `*error` says why. */
static pid_t execute(const struct page *page, int out, volatile int *error) {
    pid_t pid = vfork();
    if (pid != 0)
        return pid;
    setsid();
    if (dup2(nothing, 0) == 0 && dup2(out, 1) == 1 && dup2(errors[1], 2) == 2) {
        sigprocmask(SIG_SETMASK, &before, NULL);
        execve(page->program, page->words.items, environ);
    }
    *error = errno;
    _exit(127);
}

static void cannot(struct connection *connection, const char *what, int error, char why[200]) {
    snprintf(why, 200, "%.100s: %s", what, strerror(error));
    connection_give_up(connection, OTHER);
}

void command_start(struct connection *connection, int poller, char why[200]) {
    int out[2];
    volatile int error = 0;
    if (pipe2(out, O_CLOEXEC) != 0) {
        cannot(connection, "pipe2", errno, why);
        return;
    }
    connection->fd = out[0];
    fcntl(out[0], F_SETFL, O_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.ptr = connection};
    if (poller >= 0 && epoll_ctl(poller, EPOLL_CTL_ADD, out[0], &event) != 0)
        error = errno;
    pid_t pid = error == 0 ? execute(connection->page, out[1], &error) : 0;
    if (pid < 0)
        error = errno;
    close(out[1]);
    if (error == 0) {
        connection->pid = pid;
        connection->progress = RECEIVING;
        return;
    }
    if (pid > 0)
        waitpid(pid, NULL, 0);
    cannot(connection, pid > 0 ? connection->page->words.items[0] : pid < 0 ? "fork" : "epoll_ctl", error, why);
}

void command_read(struct connection *connection) {
    static char data[65536];
    while (connection->fd >= 0) {
        ssize_t got = read(connection->fd, data, sizeof data);
        if (got > 0)
            connection_take(connection, data, (size_t)got);
        else if (got == 0)
            connection_close(connection);
        else if (errno != EINTR)
            return;
    }
}

static void judge(struct connection *connection, int status, char why[200]) {
    int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    command_read(connection);
    connection_close(connection); /* a process that it left may hold it open */
    connection_judge(connection, code, why);
    if (connection->failure == RIGHT)
        return;
    command_take_errors();
    size_t said = strlen(why);
    if (last_words[0] != '\0' && said + 3 < 200)
        snprintf(why + said, 200 - said, ": %s", last_words);
}

struct connection *command_next_end(struct connection *connections, unsigned count, char why[200]) {
    int status;
    for (;;) {
        pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid <= 0)
            return NULL;
        for (unsigned i = 0; i < count; i++) {
            if (connections[i].pid != pid)
                continue;
            connections[i].pid = 0;
            judge(&connections[i], status, why);
            return &connections[i];
        }
    }
}
