/* SPDX-License-Identifier: Apache-2.0 */
/* Users and groups by name or number, as container engines resolve them, from the image's own files. */
#include "init/container/user.h"

#include <stdbool.h>
#include <string.h>

#include "init/base/read_file.h"

#define MOST (1 << 20)
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
        } else if (name != NULL && identity->group_count < MAX_GROUPS && has_member(fields[3], name)) {
            identity->groups[identity->group_count++] = gid;
        }
    }
    if (wanted_group != NULL && !found) {
        if (!by_number)
            return "no such group in /etc/group";
        identity->gid = number;
    }
    return NULL;
}

const char *identity_find(const char *text, struct identity *identity) {
    char *passwd = read_file("/etc/passwd", MOST, NULL);
    char *group = read_file("/etc/group", MOST, NULL);
    return identity_parse(text, passwd, group, identity);
}
