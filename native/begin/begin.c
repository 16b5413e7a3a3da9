// SPDX-License-Identifier: Apache-2.0
// Starts a program in the lab and waits for it. Two functions at known addresses tell a watcher of the processor when
// the program is executed, and when it has ended.
//
//   begin PROGRAM [WORD...]
//
// Ends as the program did: with its status, or 128 and the number of the signal that ended it; 127 if it cannot be
// executed, with the reason on standard error.
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) void vt_mark_monitor(void) {
    __asm__ volatile("/* mark monitor */" ::: "memory");
}

__attribute__((noinline)) void vt_mark_gone(void) {
    __asm__ volatile("/* mark gone */" ::: "memory");
}

int main(int argc, char **argv) {
    int status = 0;
    pid_t child;
    if (argc < 2) {
        fprintf(stderr, "begin: no program is named\n");
        return 127;
    }
    child = fork();
    if (child == 0) {
        vt_mark_monitor();
        execvp(argv[1], argv + 1);
    }
    if (child <= 0) {
        fprintf(stderr, "begin: %s: %s\n", argv[1], strerror(errno));
        return 127;
    }
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    vt_mark_gone();
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
