// SPDX-License-Identifier: Apache-2.0
#include "supervise/caught.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define FIRST_REALTIME 34 // the C library may keep the first ones from sigaddset
#define LAST_SIGNAL 64
#define BITS (8 * sizeof(unsigned long))

static const int stopping[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
// Not among them: what stops a job (SIGTSTP and its like), what is about our own process (SIGCHLD, SIGPIPE, SIGURG, the
// limits of resources), and what a fault of ours raises.
static const int passed_on[] = {SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGCONT, SIGIO, SIGPWR, SIGWINCH};

static void add(sigset_t *set, int number) {
    ((unsigned long *)set)[(unsigned)(number - 1) / BITS] |= 1ul << ((unsigned)(number - 1) % BITS);
}

static void on_timer(int number) {
    (void)number; // only interrupts a write
}

int caught_start(void) {
    sigset_t all;
    struct sigaction before;
    sigemptyset(&all);
    for (size_t i = 0; i < sizeof(passed_on) / sizeof(*passed_on); i++)
        add(&all, passed_on[i]);
    for (int i = FIRST_REALTIME; i <= LAST_SIGNAL; i++)
        add(&all, i);
    for (size_t i = 0; i < sizeof(stopping) / sizeof(*stopping); i++)
        if (stopping[i] != SIGHUP || sigaction(SIGHUP, NULL, &before) || before.sa_handler != SIG_IGN)
            add(&all, stopping[i]);
    sigaction(SIGURG, &(struct sigaction){.sa_handler = on_timer}, NULL);
    signal(SIGPIPE, SIG_IGN);
    sigprocmask(SIG_BLOCK, &all, NULL);
    return signalfd(-1, &all, SFD_NONBLOCK | SFD_CLOEXEC);
}

int caught_next(int fd) {
    struct signalfd_siginfo info;
    return read(fd, &info, sizeof(info)) == sizeof(info) ? (int)info.ssi_signo : 0;
}

bool caught_stops(int number) {
    for (size_t i = 0; i < sizeof(stopping) / sizeof(*stopping); i++)
        if (stopping[i] == number)
            return true;
    return false;
}

void caught_end(int fd) {
    sigset_t none;
    sigemptyset(&none);
    while (caught_next(fd)) // they asked for an end that has come
        ;
    sigprocmask(SIG_SETMASK, &none, NULL);
    close(fd);
}
