// SPDX-License-Identifier: Apache-2.0
// Kills what a process has started when that process is gone, however it ended. It is told on standard input, whose
// other end only that process has: "+N\n" for a process group, "-N\n" when it has ended.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static pid_t *groups;
static size_t count;

static void forget(pid_t group) {
    for (size_t i = 0; i < count; i++)
        if (groups[i] == group)
            groups[i--] = groups[--count];
}

static void remember(pid_t group) {
    pid_t *grown = realloc(groups, (count + 1) * sizeof(*groups));
    if (!grown)
        return;
    groups = grown;
    groups[count++] = group;
}

int main(void) {
    int sign;
    long group;
    sigset_t all;
    char line[32];
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    setvbuf(stdin, NULL, _IOLBF, 4096);
    while (fgets(line, sizeof(line), stdin)) {
        sign = line[0];
        group = strtol(line + 1, NULL, 10);
        if (group <= 1) // not every process there is
            continue;
        forget((pid_t)group);
        if (sign == '+')
            remember((pid_t)group);
    }
    for (size_t i = 0; i < count; i++)
        kill(-groups[i], SIGKILL);
    return 0;
}
