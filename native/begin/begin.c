// SPDX-License-Identifier: Apache-2.0
// Starts a program in the lab and waits for it. Two functions at known addresses tell a watcher of the processor when
// the program is executed, and when it has ended. The file `clock` in the working directory gets the processor's
// counter at these two moments.
//
//   begin PROGRAM [WORD...]
//
// Ends as the program did: with its status, or 128 and the number of the signal that ended it; 127 if it cannot be
// executed, with the reason on standard error.
#include "arch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile uint64_t begun; // set by the child, which shares this memory until it executes the program

__attribute__((noinline)) void vt_mark_monitor(void) {
    begun = arch_cycles();
    __asm__ volatile("/* mark monitor */" ::: "memory");
}

__attribute__((noinline)) uint64_t vt_mark_gone(void) {
    __asm__ volatile("/* mark gone */" ::: "memory");
    return arch_cycles();
}

static void note(uint64_t ended) {
    FILE *file = fopen("clock", "w");
    if (!file)
        return;
    fprintf(file, "%" PRIu64 " %" PRIu64 "\n", begun, ended);
    fclose(file);
}

int main(int argc, char **argv) {
    volatile int failed = 0;
    int status = 0;
    pid_t child;
    if (argc < 2) {
        fprintf(stderr, "begin: no program is named\n");
        return 127;
    }
    child = vfork();
    if (child == 0) {
        vt_mark_monitor();
        execvp(argv[1], argv + 1);
        failed = errno;
        _exit(127);
    }
    if (child < 0)
        failed = errno;
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    note(vt_mark_gone());
    if (failed) {
        fprintf(stderr, "begin: %s: %s\n", argv[1], strerror(failed));
        return 127;
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
