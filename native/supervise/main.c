// SPDX-License-Identifier: Apache-2.0
// Starts one machine by orders, and stays beside it: relays its container's streams and signals, and ends with the
// container's exit status.
//
//   supervise FD               orders from an inherited descriptor
//   supervise --orders PATH    orders from a file that nobody else may write
//
// Status 200: a file is not what it was when it was checked, and nothing was started.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "supervise/caught.h"
#include "supervise/control.h"
#include "supervise/end.h"
#include "supervise/relay.h"

#define MOST_ORDERS (64 << 20)
#define DECLINED 200
#define FAILED 125
// Between two runs; it grows, unless the machine was up for a while.
#define LEAST_PAUSE_MS 100
#define MOST_PAUSE_MS 60000
#define SETTLED_MS 10000

static struct orders orders;
static struct relay relay;

static _Noreturn void refuse(const char *what) {
    fprintf(stderr, "supervise: %s: %s\n", what, strerror(errno));
    exit(64);
}

// A file that we open would come to lie at a standard stream that was closed, and get the container's output.
static void hold_streams(void) {
    int fd;
    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd < 3);
    close(fd);
}

// What our caller's shell had open is for nobody.
static void close_on_exec(void) {
    DIR *folder = opendir("/proc/self/fd");
    struct dirent *entry;
    for (int fd = 3; !folder && fd < 1024; fd++)
        fcntl(fd, F_SETFD, FD_CLOEXEC);
    while (folder && (entry = readdir(folder))) {
        int fd = atoi(entry->d_name);
        if (fd > 2)
            fcntl(fd, F_SETFD, FD_CLOEXEC);
    }
    if (folder)
        closedir(folder);
}

static int open_orders(int count, char **words) {
    struct stat what;
    if (count == 2)
        return atoi(words[1]);
    if (count != 3 || strcmp(words[1], "--orders")) {
        fprintf(stderr, "usage: supervise FD | --orders PATH\n");
        exit(64);
    }
    int file = open(words[2], O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0 || fstat(file, &what))
        refuse(words[2]);
    errno = EPERM;
    if (!S_ISREG(what.st_mode) || what.st_uid != geteuid() || what.st_mode & 022)
        refuse(words[2]);
    return file;
}

static void read_orders(int file) {
    size_t length = 0, room = 65536;
    char *text = malloc(room);
    ssize_t got = 0;
    while (text && (got = read(file, text + length, room - length)) > 0) {
        length += (size_t)got;
        if (length == room && room < MOST_ORDERS)
            text = realloc(text, room *= 2);
    }
    if (!text || got < 0 || length == room)
        refuse("orders");
    close(file);
    orders_read(&orders, text, length);
}

// Go on in the background. Who started us ends once the container's program runs, or as we do when it does not come to
// that.
static int detach(void) {
    int line[2], status;
    char byte;
    if (pipe2(line, O_CLOEXEC))
        refuse("pipe");
    pid_t pid = fork();
    if (pid < 0)
        refuse("fork");
    if (pid == 0) {
        close(line[0]);
        setsid();
        return line[1];
    }
    close(line[1]);
    if (read(line[0], &byte, 1) == 1) {
        if (orders.start_print && (printf("%s\n", orders.start_print) < 0 || fflush(stdout)))
            exit(FAILED);
        exit(0);
    }
    exit(waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : FAILED);
}

// The status of one run that has ended; its end is worded, where it needs words.
static int status_of_run(void) {
    int status = end_status(&relay);
    if (status < 0 && !orders.state)
        end_explain(&relay);
    return status < 0 ? end_explained(&relay, relay.state.error, sizeof(relay.state.error)) : status;
}

// Why it could not be executed, for a client who was not told by the words of its end.
static const char *why(void) {
    return relay.state.error[0] ? "" : relay.guest.reason;
}

static bool is_started_again(int status) {
    const char *policy = orders.restart ? orders.restart : "no";
    if (!relay.restarts || (orders.detached && !relay.alone)) // a container that never began is not tried again
        return false;
    if (!strncmp(policy, "on-failure", 10)) {
        long most = policy[10] == ':' ? strtol(policy + 11, NULL, 10) : 0;
        return status && (most <= 0 || relay.state.restarts < most);
    }
    return !strcmp(policy, "always") || !strcmp(policy, "unless-stopped");
}

// A machine whose program could not be executed at its first start is as it was created, as in docker.
static bool is_as_created(void) {
    return relay.state.restarts == 0 && relay.guest.reason && relay.guest.reason[0];
}

// Run the machine, again as the policy says; returns the last status.
static int run(void) {
    int64_t pause_ms = LEAST_PAUSE_MS;
    for (;;) {
        relay_run(&relay);
        bool again = false;
        if (!orders.detached)
            relay_drain(&relay);
        int status = status_of_run();
        again = is_started_again(status);
        relay.state.status = again ? "restarting" : is_as_created() ? "created" : "exited";
        relay.state.exit = status;
        relay.state.finished_ns = real_ns();
        relay.state.health = orders.health.count && again ? "starting" : "none";
        state_save(&relay.state);
        control_ended(status, relay.guest.signal, why(), !again);
        if (!again)
            return status;
        if (relay.finished_ms - relay.machine.started_ms > SETTLED_MS)
            pause_ms = LEAST_PAUSE_MS;
        relay_idle(&relay, pause_ms);
        pause_ms = 2 * pause_ms < MOST_PAUSE_MS ? 2 * pause_ms : MOST_PAUSE_MS;
        if (!relay.restarts) { // it was asked to stop in between
            relay.state.status = "exited";
            state_save(&relay.state);
            control_ended(status, relay.guest.signal, why(), true);
            return status;
        }
        relay.state.restarts++;
    }
}

int main(int count, char **words) {
    hold_streams();
    close_on_exec();
    read_orders(open_orders(count, words));
    if (!machine_open(&orders)) {
        if (orders.otherwise.count)
            execv(orders.otherwise.items[0], orders.otherwise.items);
        return DECLINED;
    }
    relay.orders = &orders;
    relay.restarts = true;
    relay.started = orders.detached ? detach() : -1;
    if (!state_open(&relay.state, &orders)) {
        fprintf(stderr, "vmtailor: the machine runs already\n");
        return FAILED;
    }
    relay.signals = caught_start();
    control_open(&relay);
    if (orders.detached) { // they are soon another's
        relay.out = relay.err = (struct outlet){.fd = -1, .failed = ENXIO};
    } else {
        outlet_open(&relay.out, 1);
        outlet_open(&relay.err, 2);
    }
    if (orders.awaits && !relay_await(&relay)) {
        control_close(&orders);
        return FAILED;
    }
    int status = run();
    control_close(&orders);
    return status;
}
