// SPDX-License-Identifier: Apache-2.0
// Starts QEMU in the place of a monitor, and says on standard error how many exits KVM has counted when QEMU ends. It
// is asked as the process is about to end: KVM forgets a machine's count with the machine. Needs root and debugfs.
//
//   exits WORD...
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROGRAM "qemu-system-x86_64"
#define DEBUG "/sys/kernel/debug"
enum { FAILED = 127 };

static int failed(const char *call) {
    fprintf(stderr, "exits: %s: %s\n", call, strerror(errno));
    return FAILED;
}

static int tell(void) {
    char count[32];
    FILE *file = fopen(DEBUG "/kvm/exits", "re");
    if (!file || !fgets(count, sizeof count, file))
        return failed(DEBUG "/kvm/exits");
    fclose(file);
    fprintf(stderr, "exits %s", count);
    return 0;
}

static void begin(char **words) {
    words[0] = PROGRAM;
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0 && raise(SIGSTOP) == 0)
        execvp(PROGRAM, words);
    _exit(failed(PROGRAM));
}

int main(int argc, char **words) {
    int status, told = argc > 1 ? 0 : FAILED;
    if (mount("debugfs", DEBUG, "debugfs", 0, NULL) < 0 && errno != EBUSY)
        return failed("mount " DEBUG);
    pid_t child = fork();
    if (child < 0)
        return failed("fork");
    if (child == 0)
        begin(words);
    if (waitpid(child, &status, 0) < 0 || ptrace(PTRACE_SETOPTIONS, child, NULL, (void *)PTRACE_O_TRACEEXIT) < 0)
        return failed("ptrace");
    for (long signal = 0;; signal = WSTOPSIG(status)) {
        if (signal == SIGSTOP || signal == SIGTRAP) // ours, the exec's, and the end's
            signal = 0;
        if (ptrace(PTRACE_CONT, child, NULL, (void *)signal) < 0 || waitpid(child, &status, 0) < 0)
            return failed("ptrace");
        if (!WIFSTOPPED(status))
            return told ? told : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        if (status >> 8 == (SIGTRAP | PTRACE_EVENT_EXIT << 8))
            told = tell();
    }
}
