// SPDX-License-Identifier: Apache-2.0
#include "launch/users.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch/fail.h"

bool users_word(struct users *users, const char *name, const char *value, const char *second) {
    if (!strcmp(name, "mappers"))
        users->mappers[0] = value, users->mappers[1] = second;
    else if (!strcmp(name, "uids") || !strcmp(name, "gids"))
        users->first[*name == 'g'] = value, users->count[*name == 'g'] = second;
    else
        return false;
    return true;
}

void users_prepare(struct users *users, const char *who) {
    users->starter[0] = getuid(), users->starter[1] = getgid();
    if (pipe2(users->asked, O_CLOEXEC) || pipe2(users->given, O_CLOEXEC))
        fail("make a pipe for", who);
}

static void write_text(const char *path, const char *text) {
    int file = open(path, O_WRONLY | O_CLOEXEC);
    if (file < 0 || write(file, text, strlen(text)) != (ssize_t)strlen(text))
        fail("write", path);
    close(file);
}

void users_map(const struct users *users, const char *who) {
    char text[64], byte = 'm';
    if (users->mappers[0]) {
        errno = EPERM;
        if (write(users->asked[1], &byte, 1) != 1 || read(users->given[0], &byte, 1) != 1)
            fail("get users and groups for", who);
        return;
    }
    write_text("/proc/self/setgroups", "deny");
    snprintf(text, sizeof(text), "0 %u 1", users->starter[0]);
    write_text("/proc/self/uid_map", text);
    snprintf(text, sizeof(text), "0 %u 1", users->starter[1]);
    write_text("/proc/self/gid_map", text);
}

void users_give(const struct users *users, pid_t process, const char *who) {
    char byte, number[16], start[16];
    if (read(users->asked[0], &byte, 1) != 1)
        return; // it has failed, and said so
    snprintf(number, sizeof(number), "%d", process);
    for (int group = 0; group < 2; group++) {
        snprintf(start, sizeof(start), "%u", users->starter[group]);
        const char *words[] = {users->mappers[group], number, "0", start, "1", "1", users->first[group],
                               users->count[group],   NULL};
        int status = -1;
        pid_t mapper = fork();
        if (mapper == 0) {
            execv(words[0], (char **)words);
            _exit(71);
        }
        if (mapper < 0 || waitpid(mapper, &status, 0) != mapper || status != 0)
            errno = EPERM, fail("get users and groups by", words[0]);
    }
    if (write(users->given[1], "m", 1) != 1)
        fail("tell", who);
}
