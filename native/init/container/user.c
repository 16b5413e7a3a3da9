/* SPDX-License-Identifier: Apache-2.0 */
/* Users and groups by name or number, as container engines resolve them, from the image's own files. */
#include "init/container/user.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "init/base/read_file.h"

#define MOST (16 << 20)
#define FIELDS 7

/* Cut the next line off `*text` and split it at colons; missing fields are "". False at the end. */
static bool next_line(char **text, char *fields[FIELDS]) {
    char *line = *text;
    if (line == NULL || *line == '\0')
        return false;
    char *end = strchr(line, '\n');
    *text = end == NULL ? NULL : end + 1;
    if (end != NULL)
        *end = '\0';
    for (int i = 0; i < FIELDS; i++) {
        fields[i] = line;
        char *colon = i < FIELDS - 1 ? strchr(line, ':') : NULL;
        if (colon != NULL)
            *colon = '\0';
        line = colon != NULL ? colon + 1 : line + strlen(line);
    }
    return true;
}

/* A number that is an ID (below 2^32 - 1), or false. */
static bool id_of(const char *text, unsigned *id) {
    if (*text < '0' || *text > '9')
        return false;
    unsigned long long value = 0;
    for (; *text >= '0' && *text <= '9'; text++) {
        value = 10 * value + (unsigned)(*text - '0');
        if (value >= 0xFFFFFFFFu)
            return false;
    }
    *id = (unsigned)value;
    return *text == '\0';
}

static bool has_member(char *members, const char *name) {
    size_t length = strlen(name);
    for (char *member = members; *member != '\0';) {
        size_t size = strcspn(member, ",");
        if (size == length && memcmp(member, name, size) == 0)
            return true;
        member += size + (member[size] == ',');
    }
    return false;
}

/* The line of a user, by number where `wanted` is one, and by name otherwise, as in engines: name into `*name` (NULL
 * when there is none). */
static void find_user(char *passwd, const char *wanted, struct identity *identity, const char **name) {
    char *fields[FIELDS];
    unsigned uid, gid, number = 0;
    bool by_number = id_of(wanted, &number);
    while (next_line(&passwd, fields)) {
        if (!id_of(fields[2], &uid) || !id_of(fields[3], &gid))
            continue;
        if (by_number ? uid != number : strcmp(fields[0], wanted) != 0)
            continue;
        *name = fields[0];
        identity->uid = uid;
        identity->gid = gid;
        if (fields[5][0] != '\0')
            identity->home = fields[5];
        return;
    }
}

/* Add a group. Returns NULL, or what is wrong: a group that is left out would be a right, or a denial, less. */
static const char *add_group(struct identity *identity, gid_t gid) {
    size_t count = identity->group_count;
    if (count == MAX_GROUPS)
        return "the user is in more than 65536 groups";
    if ((count & (count - 1)) == 0) { /* none, or a power of two: there is no more room */
        gid_t *larger = realloc(identity->groups, (count == 0 ? 1 : 2 * count) * sizeof *larger);
        if (larger == NULL)
            return "no memory for the user's groups";
        identity->groups = larger;
    }
    identity->groups[identity->group_count++] = gid;
    return NULL;
}

static const char *add_once(struct identity *identity, gid_t gid) {
    for (size_t i = 0; i < identity->group_count; i++)
        if (identity->groups[i] == gid)
            return NULL;
    return add_group(identity, gid);
}

/* The primary group is among the others, once: files may deny it what they allow to all (CVE-2022-36109). Root without
   further groups is what init is, and asks nothing of the kernel. */
static const char *add_primary(struct identity *identity) {
    if (identity->uid == 0 && identity->gid == 0 && identity->group_count == 0)
        return NULL;
    size_t at = 0;
    while (at < identity->group_count && identity->groups[at] != identity->gid)
        at++;
    const char *wrong = at == identity->group_count ? add_group(identity, identity->gid) : NULL;
    if (wrong == NULL) {
        memmove(identity->groups + 1, identity->groups, at * sizeof *identity->groups);
        identity->groups[0] = identity->gid;
    }
    return wrong;
}

const char *identity_parse(const char *text, char *passwd, char *group, struct identity *identity) {
    static char user[256];
    memset(identity, 0, sizeof *identity);
    identity->home = "/";
    const char *colon = strchr(text, ':');
    const char *wanted_group = colon != NULL && colon[1] != '\0' ? colon + 1 : NULL;
    size_t length = colon != NULL ? (size_t)(colon - text) : strlen(text);
    if (length >= sizeof user)
        return "the user's name is too long";
    memcpy(user, text, length);
    user[length] = '\0';

    const char *name = NULL;
    unsigned number = 0;
    find_user(passwd, length == 0 ? "0" : user, identity, &name);
    if (name == NULL && length > 0) {
        if (!id_of(user, &number))
            return "no such user in /etc/passwd";
        identity->uid = number;
    }

    /* A group that is named replaces the user's, and there are no others then. */
    bool found = false;
    bool by_number = wanted_group != NULL && id_of(wanted_group, &number);
    char *fields[FIELDS];
    unsigned gid;
    while (next_line(&group, fields)) {
        if (!id_of(fields[2], &gid))
            continue;
        if (wanted_group != NULL) {
            if (by_number ? gid == number : strcmp(fields[0], wanted_group) == 0) {
                identity->gid = gid;
                found = true;
                break;
            }
        } else if (name != NULL && has_member(fields[3], name)) {
            const char *wrong = add_group(identity, gid);
            if (wrong != NULL)
                return wrong;
        }
    }
    if (wanted_group != NULL && !found) {
        if (!by_number)
            return "no such group in /etc/group";
        identity->gid = number;
    }
    return add_primary(identity);
}

static const char *no_group(const char *name) {
    static char text[128];
    snprintf(text, sizeof text, "no such group in /etc/group to add: %.64s", name);
    return text;
}

const char *identity_add(struct identity *identity, char *group, const struct list *wanted) {
    char *fields[FIELDS];
    unsigned gid;
    size_t known = 0; /* of `wanted` */
    bool *found = calloc(wanted->count, sizeof *found);
    const char *wrong = found == NULL ? "no memory for the user's groups" : NULL;
    while (wrong == NULL && next_line(&group, fields))
        for (size_t i = 0; wrong == NULL && i < wanted->count && id_of(fields[2], &gid); i++)
            if (!found[i] && strcmp(fields[0], wanted->items[i]) == 0) {
                found[i] = true;
                wrong = add_once(identity, gid);
            }
    for (; wrong == NULL && known < wanted->count; known++)
        if (!found[known])
            wrong = id_of(wanted->items[known], &gid) ? add_once(identity, gid) : no_group(wanted->items[known]);
    free(found);
    return wrong != NULL ? wrong : add_primary(identity);
}

const char *identity_find(const char *text, const struct list *more, struct identity *identity) {
    size_t users = 0, groups = 0;
    char *passwd = read_file("/etc/passwd", MOST, &users);
    char *group = read_file("/etc/group", MOST, &groups);
    if (users == MOST || groups == MOST)
        return users == MOST ? "/etc/passwd is larger than 16 MiB" : "/etc/group is larger than 16 MiB";
    char *again = more != NULL && more->count > 0 && group != NULL ? strdup(group) : NULL; /* parsed in place */
    const char *wrong = identity_parse(text, passwd, group, identity);
    if (wrong == NULL && more != NULL && more->count > 0)
        wrong = identity_add(identity, again, more);
    free(again);
    return wrong;
}
