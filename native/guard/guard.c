// SPDX-License-Identifier: Apache-2.0
// Ends what a process has started when that process is gone, however it ended: compilers remove what they have not
// finished when they are asked to end, and are killed only after that. It is told on standard input, whose other end
// only that process has: "+N\n" for a process group, "-N\n" when it has ended.
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { GRACE_MS = 3000, STEP_MS = 20 };

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
    bool left = count > 0;
    for (size_t i = 0; i < count; i++)
        kill(-groups[i], SIGTERM);
    for (int waited = 0; left && waited < GRACE_MS; waited += STEP_MS) {
        nanosleep(&(struct timespec){0, STEP_MS * 1000000L}, NULL);
        left = false;
        for (size_t i = 0; i < count; i++)
            left = left || kill(-groups[i], 0) == 0;
    }
    for (size_t i = 0; i < count; i++)
        kill(-groups[i], SIGKILL);
    return 0;
}
