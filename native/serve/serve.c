// SPDX-License-Identifier: Apache-2.0
// Starts file servers for a machine, each shut in with the one folder or file that it shares, and becomes the program
// that starts the machine. Each server's socket is connected here, in a network namespace of the server's own, and
// handed on as a descriptor: nobody else can connect.
//
//   serve WORD [VALUE...]... -- PROGRAM [ARGUMENT...]
//
//   parent PID               end at once when this process, our parent, ends; PROGRAM's first word `parent` gets it too
//   root mount|user|ids      each server's root is in a mount namespace; in one of a new user namespace, where its root
//                            is who starts it; or the same with further users (uids, gids)
//   uids, gids FIRST COUNT   numbers of the host that become the server's from 1 on
//   mappers UIDS GIDS        the programs newuidmap and newgidmap, for these
//   show PATH, device PATH   as for launch: what the server itself needs
//   arg WORD                 a word of the server's command, the program first; its socket is descriptor 3, what it
//                            shares /shared
//   folder|folder-ro DESCRIPTOR PATH   share a folder; the program has the connection as this descriptor
//   file|file-ro DESCRIPTOR PATH       share a file, as /shared/file
//
// A watcher stays: when a server ends before the program, it says so on standard error and ends the program; servers
// and watcher end with the program. Every failure is said on standard error, and the status is 71.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "launch/fail.h"
#include "launch/root.h"
#include "launch/users.h"

#define MAX_SHARES 16
#define MAX_WORDS 64
#define SOCKET 3     // of a server
#define LATE_MS 3000 // between a server's orderly end and its program's
#define LOOK_MS 500  // at the program, where the kernel has no descriptors of processes
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#define SHARED "/shared"
#define ONE_FILE SHARED "/file"
#define MOST_FILES 1048576 // as many as kernels let a process have

struct share {
    enum kind kind;
    bool read_only;
    int number; // of the program's descriptor
    const char *path;
    int hand[2]; // by which the connection comes here
    struct users users;
    pid_t server;
};

static struct {
    pid_t parent;
    char *parent_word;
    struct root root;
    bool ids;
    struct users users;
    char *command[MAX_WORDS + 1];
    size_t words, shares;
    struct share share[MAX_SHARES];
    char **program;
} want;

static struct share *own; // in a server, before it is one

static _Noreturn void usage(const char *word) {
    fprintf(stderr, "serve: '%s' is not understood\n", word);
    exit(64);
}

static int number(const char *word) {
    char *end;
    errno = 0;
    long value = strtol(word, &end, 10);
    if (errno || end == word || *end || value < 0 || value > INT32_MAX)
        usage(word);
    return (int)value;
}

static void add_item(enum kind kind, const char *path) {
    if (want.root.count == MAX_ITEMS - 1 || path[0] != '/')
        usage(path);
    want.root.items[want.root.count++] = (struct item){.kind = kind, .source = path, .path = path, .opened = -1};
}

static void add_share(const char *name, const char *descriptor, const char *path) {
    if (want.shares == MAX_SHARES || path[0] != '/')
        usage(path);
    want.share[want.shares++] = (struct share){
        .kind = strncmp(name, "folder", 6) == 0 ? FOLDER : FILE_ALONE,
        .read_only = strstr(name, "-ro") != NULL,
        .number = number(descriptor),
        .path = path,
    };
}

static bool is_share(const char *name) {
    return !strcmp(name, "folder") || !strcmp(name, "folder-ro") || !strcmp(name, "file") || !strcmp(name, "file-ro");
}

static void parse_root(const char *value) {
    want.root.wanted = true;
    want.ids = !strcmp(value, "ids");
    want.root.user = want.ids || !strcmp(value, "user");
    if (!want.root.user && strcmp(value, "mount") != 0)
        usage(value);
}

static void parse(char **word) {
    for (; *word && strcmp(*word, "--"); word++) {
        const char *name = *word;
        char *value = *++word;
        if (!value)
            usage(name);
        bool two = is_share(name) || !strcmp(name, "uids") || !strcmp(name, "gids") || !strcmp(name, "mappers");
        const char *second = two ? *++word : "";
        if (!second)
            usage(name);
        if (!strcmp(name, "parent"))
            want.parent = number(value), want.parent_word = value;
        else if (!strcmp(name, "root"))
            parse_root(value);
        else if (users_word(&want.users, name, value, second))
            continue;
        else if (!strcmp(name, "show"))
            add_item(SHOW, value);
        else if (!strcmp(name, "device"))
            add_item(DEVICE, value);
        else if (!strcmp(name, "arg") && want.words < MAX_WORDS)
            want.command[want.words++] = value;
        else if (is_share(name))
            add_share(name, value, second);
        else
            usage(name);
    }
    if (!*word || !word[1] || want.words == 0 || !want.root.wanted)
        usage("--");
    want.program = word + 1;
    // The launcher's parent is ours, whoever wrote its words.
    if (want.parent_word && word[2] && word[3] && !strcmp(word[2], "parent"))
        word[3] = want.parent_word;
}

static void die_with(pid_t parent) {
    if (prctl(PR_SET_PDEATHSIG, SIGKILL))
        fail("die with the starter", "");
    if (getppid() != parent)
        raise(SIGKILL);
}

static void map_users(void) {
    users_map(&own->users, own->path);
}

// A listening socket that nobody but us can reach, and a connection to it that waits there.
static int connected(void) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    socklen_t length = sizeof(name.sun_family);
    if (unshare(CLONE_NEWNET | CLONE_NEWIPC))
        fail("make a network namespace", "");
    int listens = socket(AF_UNIX, SOCK_STREAM, 0), ours = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listens < 0 || ours < 0 || bind(listens, (struct sockaddr *)&name, length))
        fail("make a socket", "");
    length = sizeof(name);
    if (getsockname(listens, (struct sockaddr *)&name, &length) || listen(listens, 1) ||
        connect(ours, (struct sockaddr *)&name, length))
        fail("connect a socket", "");
    if (listens != SOCKET && (dup2(listens, SOCKET) < 0 || close(listens)))
        fail("number a socket", "");
    return ours;
}

static void hand_over(int hand, int descriptor) {
    char byte = 'c', room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room)};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &descriptor, sizeof(int));
    if (sendmsg(hand, &message, MSG_NOSIGNAL) != 1)
        fail("hand a socket over", "");
}

static int handed_over(int hand) {
    char byte, room[CMSG_SPACE(sizeof(int))];
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room)};
    int descriptor;
    if (recvmsg(hand, &message, 0) != 1 || !CMSG_FIRSTHDR(&message))
        exit(71); // the server has said why
    memcpy(&descriptor, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
    return descriptor;
}

static void close_range_from(unsigned first) {
    if (syscall(SYS_close_range, first, ~0U, 0) == 0)
        return;
    for (int one = (int)first; one < 1024; one++)
        close(one);
}

// The server holds a descriptor for each file that the guest knows. Who may raises the limit beyond its hard value.
static void raise_limit(void) {
    struct rlimit files, most = {MOST_FILES, MOST_FILES};
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 &&
        (files.rlim_max >= MOST_FILES || setrlimit(RLIMIT_NOFILE, &most) != 0)) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
}

static _Noreturn void serve(struct share *share, pid_t watcher) {
    own = share;
    die_with(watcher);
    want.root.map = map_users;
    add_item(SHOW, "/proc/self"); // its own descriptors, by which it opens files again; no other process
    want.root.items[want.root.count++] = (struct item){
        .kind = share->kind,
        .source = share->path,
        .path = share->kind == FOLDER ? SHARED : ONE_FILE,
        .opened = -1,
        .read_only = share->read_only,
    };
    root_make(&want.root, 0, 0);
    int hand = fcntl(share->hand[1], F_DUPFD_CLOEXEC, 10), ours = connected();
    hand_over(hand, ours);
    raise_limit();
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        fail("give up new privileges", "");
    die_with(watcher);
    close_range_from(SOCKET + 1);
    execve(want.command[0], want.command, (char *[]){"LC_ALL=C", NULL});
    fail("execute", want.command[0]);
}

static void describe(char *text, size_t size, int status) {
    if (WIFSIGNALED(status))
        snprintf(text, size, "signal %d", WTERMSIG(status));
    else
        snprintf(text, size, "status %d", WEXITSTATUS(status));
}

// Descriptors that tell of the program's end and of ours. A program that became another user may not send us the signal
// that we asked for at its end.
static void watch_ends(pid_t program, struct pollfd polls[2]) {
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGCHLD);
    sigprocmask(SIG_BLOCK, &ends, NULL);
    polls[0] = (struct pollfd){.fd = (int)syscall(SYS_pidfd_open, program, 0), .events = POLLIN};
    polls[1] = (struct pollfd){.fd = signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK), .events = POLLIN};
}

static _Noreturn void watch(pid_t program, int go) {
    char byte, how[32];
    int status;
    pid_t ended;
    struct signalfd_siginfo told;
    struct pollfd polls[2];
    if (read(go, &byte, 1) != 1)
        _exit(71);
    close_range_from(3);
    watch_ends(program, polls);
    while (getppid() == program) {
        while (read(polls[1].fd, &told, sizeof(told)) > 0)
            ;
        ended = waitpid(-1, &status, WNOHANG);
        if (ended < 0)
            break;
        if (ended == 0) {
            poll(polls, 2, polls[0].fd < 0 ? LOOK_MS : -1);
            continue;
        }
        // Once the machine ends, its servers do, and then its program.
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
            poll(polls, 1, LATE_MS);
        for (size_t i = 0; i < want.shares; i++) {
            if (want.share[i].server != ended || getppid() != program)
                continue;
            describe(how, sizeof(how), status);
            dprintf(2, "serve: the file server of %s ended (%s), and the machine with it\n", want.share[i].path, how);
            kill(program, SIGKILL);
        }
    }
    _exit(0); // which ends servers that still run
}

static void pipes(struct share *share) {
    share->users = want.users;
    users_prepare(&share->users, share->path);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, share->hand))
        fail("make a socket", "");
}

// Nobody's input is read, and no output kept open, by what stays.
static void leave_streams(void) {
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0)
        fail("open", "/dev/null");
    if (null > 2)
        close(null);
}

static _Noreturn void start_all(pid_t program, int go) {
    die_with(program);
    leave_streams();
    pid_t watcher = getpid();
    for (size_t i = 0; i < want.shares; i++) {
        struct share *share = &want.share[i];
        share->server = fork();
        if (share->server < 0)
            fail("start the file server of", share->path);
        if (share->server == 0)
            serve(share, watcher);
        close(share->hand[1]);
        close(share->users.asked[1]);
        if (want.ids)
            users_give(&share->users, share->server, share->path);
    }
    watch(program, go);
}

int main(int count, char **words) {
    int go[2];
    parse(words + (count > 0));
    if (want.parent)
        die_with(want.parent);
    if (pipe2(go, O_CLOEXEC))
        fail("make a pipe", "");
    for (size_t i = 0; i < want.shares; i++)
        pipes(&want.share[i]);
    pid_t program = getpid(), watcher = fork();
    if (watcher < 0)
        fail("start", "a watcher");
    if (watcher == 0) {
        close(go[1]);
        start_all(program, go[0]);
    }
    for (size_t i = 0; i < want.shares; i++) {
        struct share *share = &want.share[i];
        close(share->hand[1]);
        int descriptor = handed_over(share->hand[0]);
        if (dup2(descriptor, share->number) < 0) // not closed when the program is executed
            fail("number a socket", "");
        if (descriptor != share->number)
            close(descriptor);
    }
    if (write(go[1], "g", 1) != 1)
        fail("start", "the watcher");
    execv(want.program[0], want.program);
    fail("execute", want.program[0]);
}
