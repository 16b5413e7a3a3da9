// SPDX-License-Identifier: Apache-2.0
// Users of a new user namespace: its root is who started it, and its other users are those that the host's tables
// give the starter, or nobody.
#ifndef VT_LAUNCH_USERS_H
#define VT_LAUNCH_USERS_H

#include <stdbool.h>
#include <sys/types.h>

struct users {
    const char *first[2], *count[2]; // further users and groups, as numbers of the host; NULL: none
    const char *mappers[2];          // the programs newuidmap and newgidmap
    unsigned starter[2];             // user and group
    int asked[2], given[2];          // pipes between the two functions below
};

// Take a word of two values that says something of users; false for another word.
bool users_word(struct users *users, const char *name, const char *value, const char *second);

// Note the starter, and make the pipes; `who` is named in an error.
void users_prepare(struct users *users, const char *who);

// In the process that has just entered the namespace: get its users.
void users_map(const struct users *users, const char *who);

// In a process that stayed outside, where there are further users: give them to that process.
void users_give(const struct users *users, pid_t process, const char *who);

#endif
