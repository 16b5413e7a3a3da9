/* SPDX-License-Identifier: Apache-2.0 */
/* Users and groups by name or number, as container engines resolve them, from the image's own files. */
#ifndef VT_USER_H
#define VT_USER_H

#include <stddef.h>
#include <sys/types.h>

#include "common/records.h"

/* NGROUPS_MAX of the kernel. */
#define MAX_GROUPS 65536

/* `groups`: all supplementary ones, allocated; the primary group is the first, except for root without any other. */
struct identity {
    uid_t uid;
    gid_t gid;
    gid_t *groups;
    size_t group_count;
    const char *home;
};

/* Resolve "user", "user:group", numbers or "", and add groups by name or number (NULL: none). Returns NULL, or what is
 * wrong. Reads /etc/passwd and /etc/group. */
const char *identity_find(const char *text, const struct list *more, struct identity *identity);
/* The same over given file contents (NULL: no such file); for tests. */
const char *identity_parse(const char *text, char *passwd, char *group, struct identity *identity);
const char *identity_add(struct identity *identity, char *group, const struct list *wanted);

#endif
