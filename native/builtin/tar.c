/* SPDX-License-Identifier: Apache-2.0 */
#include "builtin/tar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_EXTENDED 65536

/* Places in a head. */
#define NAME 0
#define MODE 100
#define UID 108
#define GID 116
#define SIZE 124
#define MTIME 136
#define SUM 148
#define TYPE 156
#define LINK 157
#define MAGIC 257
#define MAJOR 329
#define MINOR 337
#define PREFIX 345

#define NAME_SIZE 100
#define PREFIX_SIZE 155
#define NUMBER_SIZE 8
#define LONG_SIZE 12

static void put_number(uint8_t *to, size_t size, uint64_t value) {
    to[size - 1] = '\0';
    for (size_t i = size - 1; i-- > 0; value >>= 3)
        to[i] = (uint8_t)('0' + (value & 7));
}

static bool fits(uint64_t value, size_t size) {
    return value >> (3 * (size - 1)) == 0;
}

static unsigned sum_of(const uint8_t *block) {
    unsigned sum = 8 * ' ';
    for (size_t i = 0; i < TAR_BLOCK; i++)
        sum += i >= SUM && i < SUM + 8 ? 0 : block[i];
    return sum;
}

/* Where a number does not fit, its field is zero, and the extended header has it. */
static void put_block(uint8_t *block, const struct tar_entry *entry) {
    const struct {
        size_t at, size;
        uint64_t value;
    } numbers[] = {{MODE, NUMBER_SIZE, entry->mode},
                   {UID, NUMBER_SIZE, entry->uid},
                   {GID, NUMBER_SIZE, entry->gid},
                   {SIZE, LONG_SIZE, entry->size},
                   {MAJOR, NUMBER_SIZE, entry->major},
                   {MINOR, NUMBER_SIZE, entry->minor},
                   {MTIME, LONG_SIZE, entry->mtime < 0 ? 0 : (uint64_t)entry->mtime}};
    memset(block, 0, TAR_BLOCK);
    memcpy(block + NAME, entry->name, strnlen(entry->name, NAME_SIZE));
    memcpy(block + LINK, entry->link, strnlen(entry->link, NAME_SIZE));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        put_number(block + numbers[i].at, numbers[i].size,
                   fits(numbers[i].value, numbers[i].size) ? numbers[i].value : 0);
    block[TYPE] = (uint8_t)entry->type;
    memcpy(block + MAGIC,
           "ustar\0"
           "00",
           8);
    put_number(block + SUM, 7, sum_of(block));
    block[SUM + 7] = ' ';
}

/* "LENGTH KEY=VALUE\n", where LENGTH counts itself. */
static size_t add_record(char *to, const char *key, const char *value) {
    size_t rest = strlen(key) + strlen(value) + 3, length = rest + 1;
    while ((size_t)snprintf(NULL, 0, "%zu", length) + rest != length)
        length++;
    return (size_t)sprintf(to, "%zu %s=%s\n", length, key, value);
}

static size_t padded(size_t length) {
    return (length + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
}

size_t tar_head(uint8_t *out, const struct tar_entry *entry) {
    char *records = (char *)out + TAR_BLOCK, number[32];
    size_t length = 0;
    if (strlen(entry->name) > NAME_SIZE)
        length += add_record(records + length, "path", entry->name);
    if (strlen(entry->link) > NAME_SIZE)
        length += add_record(records + length, "linkpath", entry->link);
    const struct {
        const char *key;
        uint64_t value;
        size_t size;
    } numbers[] = {
        {"uid", entry->uid, NUMBER_SIZE}, {"gid", entry->gid, NUMBER_SIZE}, {"size", entry->size, LONG_SIZE}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!fits(numbers[i].value, numbers[i].size)) {
            snprintf(number, sizeof number, "%llu", (unsigned long long)numbers[i].value);
            length += add_record(records + length, numbers[i].key, number);
        }
    if (entry->mtime < 0 || !fits((uint64_t)entry->mtime, LONG_SIZE)) {
        snprintf(number, sizeof number, "%lld", (long long)entry->mtime);
        length += add_record(records + length, "mtime", number);
    }
    size_t at = 0;
    if (length > 0) {
        static struct tar_entry extended; /* static: large, and all but a few bytes of it zero */
        extended.type = 'x';
        extended.mode = 0644;
        extended.size = length;
        strcpy(extended.name, "PaxHeader");
        put_block(out, &extended);
        memset(records + length, 0, padded(length) - length);
        at = TAR_BLOCK + padded(length);
    }
    put_block(out + at, entry);
    return at + TAR_BLOCK;
}

/* --- reading --- */

/* Octal, or GNU's binary form. False where it is neither, or too large. */
static bool get_number(const uint8_t *from, size_t size, uint64_t *value) {
    *value = 0;
    if (from[0] == 0x80) {
        for (size_t i = 1; i < size; i++) {
            if (*value >> 56 != 0)
                return false;
            *value = *value << 8 | from[i];
        }
        return true;
    }
    size_t i = 0;
    while (i < size && from[i] == ' ')
        i++;
    for (; i < size && from[i] >= '0' && from[i] <= '7'; i++)
        *value = *value << 3 | (unsigned)(from[i] - '0');
    return i == size || from[i] == '\0' || from[i] == ' ';
}

static bool is_zero(const uint8_t *block) {
    for (size_t i = 0; i < TAR_BLOCK; i++)
        if (block[i] != 0)
            return false;
    return true;
}

static const char *read_block(struct tar_entry *entry, const uint8_t *block) {
    uint64_t sum, mode, mtime, major, minor;
    if (!get_number(block + SUM, 8, &sum) || sum != sum_of(block))
        return "not a tar: a head has another checksum";
    bool negative = block[MTIME] == 0xff; /* before 1970, in GNU's form */
    if (!get_number(block + MODE, NUMBER_SIZE, &mode) || !get_number(block + UID, NUMBER_SIZE, &entry->uid) ||
        !get_number(block + GID, NUMBER_SIZE, &entry->gid) || !get_number(block + SIZE, LONG_SIZE, &entry->size) ||
        (!negative && !get_number(block + MTIME, LONG_SIZE, &mtime)))
        return "a head has a field that is no number";
    if (!get_number(block + MAJOR, NUMBER_SIZE, &major) || !get_number(block + MINOR, NUMBER_SIZE, &minor))
        major = minor = 0; /* old forms have something else there */
    entry->type = block[TYPE] == '\0' || block[TYPE] == '7' ? TAR_FILE : (char)block[TYPE];
    entry->mode = (unsigned)mode & 07777;
    entry->mtime = negative || mtime > INT64_MAX ? 0 : (int64_t)mtime;
    entry->major = (unsigned)major;
    entry->minor = (unsigned)minor;
    bool prefixed = memcmp(block + MAGIC, "ustar", 6) == 0 && block[PREFIX] != '\0';
    snprintf(entry->name, TAR_NAME, "%.*s%s%.*s", prefixed ? PREFIX_SIZE : 0, (const char *)block + PREFIX,
             prefixed ? "/" : "", NAME_SIZE, (const char *)block + NAME);
    snprintf(entry->link, TAR_NAME, "%.*s", NAME_SIZE, (const char *)block + LINK);
    return NULL;
}

/* What goes before an entry, and counts for it. */
struct extension {
    char *name, *link; /* of TAR_NAME bytes; empty: not said */
    bool has_uid, has_gid, has_size, has_mtime;
    uint64_t uid, gid, size;
    int64_t mtime;
};

static bool take_text(char *to, const char *value, size_t length) {
    if (length == 0 || length >= TAR_NAME || memchr(value, '\0', length) != NULL)
        return false;
    memcpy(to, value, length);
    to[length] = '\0';
    return true;
}

static bool take_number(const char *value, uint64_t *to, bool *has) {
    char *end;
    *to = strtoull(value, &end, 10);
    *has = true;
    return *value >= '0' && *value <= '9' && *end == '\n';
}

static const char *take_record(struct extension *extension, const char *key, size_t key_length, const char *value,
                               size_t length) {
    bool right = true;
    char *end;
#define IS(name) (key_length == sizeof name - 1 && memcmp(key, name, key_length) == 0)
    if (IS("path"))
        right = take_text(extension->name, value, length);
    else if (IS("linkpath"))
        right = take_text(extension->link, value, length);
    else if (IS("uid"))
        right = take_number(value, &extension->uid, &extension->has_uid);
    else if (IS("gid"))
        right = take_number(value, &extension->gid, &extension->has_gid);
    else if (IS("size"))
        right = take_number(value, &extension->size, &extension->has_size);
    else if (IS("mtime")) {
        extension->mtime = strtoll(value, &end, 10);
        extension->has_mtime = true;
    } else if (key_length >= 10 && memcmp(key, "GNU.sparse", 10) == 0)
        return "a sparse file, which is not read";
    return right ? NULL : "a bad record in an extended header";
}

/* `text` has a NUL behind it. */
static const char *read_records(struct extension *extension, const char *text, size_t size) {
    for (const char *end = text + size; text < end;) {
        char *blank;
        unsigned long length = strtoul(text, &blank, 10);
        if (*text < '0' || *text > '9' || *blank != ' ' || length > (size_t)(end - text) ||
            length <= (size_t)(blank - text) + 1 || text[length - 1] != '\n')
            return "a bad length in an extended header";
        const char *key = blank + 1, *next = text + length;
        const char *equals = memchr(key, '=', (size_t)(next - key));
        if (equals == NULL)
            return "a record without a value in an extended header";
        const char *wrong =
            take_record(extension, key, (size_t)(equals - key), equals + 1, (size_t)(next - 1 - (equals + 1)));
        if (wrong != NULL)
            return wrong;
        text = next;
    }
    return NULL;
}

static const char *read_extension(struct extension *extension, const struct tar_entry *entry, tar_source *source) {
    static char text[MOST_EXTENDED + TAR_BLOCK + 1];
    if (entry->size > MOST_EXTENDED)
        return "an extended header is too long";
    size_t length = (size_t)entry->size;
    if (!source(text, padded(length)))
        return "the archive ends early";
    text[length] = '\0';
    if (entry->type == 'x')
        return read_records(extension, text, length);
    if (entry->type == 'g')
        return NULL; /* of all that follow: nothing that we heed */
    length = strnlen(text, length);
    return take_text(entry->type == 'L' ? extension->name : extension->link, text, length) ? NULL : "a bad long name";
}

static void apply(const struct extension *extension, struct tar_entry *entry) {
    if (extension->name[0] != '\0')
        strcpy(entry->name, extension->name);
    if (extension->link[0] != '\0')
        strcpy(entry->link, extension->link);
    entry->uid = extension->has_uid ? extension->uid : entry->uid;
    entry->gid = extension->has_gid ? extension->gid : entry->gid;
    entry->size = extension->has_size ? extension->size : entry->size;
    entry->mtime = extension->has_mtime ? extension->mtime : entry->mtime;
}

const char *tar_next(struct tar_entry *entry, tar_source *source) {
    static char name[TAR_NAME], link[TAR_NAME];
    struct extension extension = {.name = name, .link = link};
    uint8_t block[TAR_BLOCK];
    name[0] = link[0] = '\0';
    for (;;) {
        if (!source(block, TAR_BLOCK))
            return "the archive ends early";
        if (is_zero(block)) {
            entry->type = 0;
            return NULL;
        }
        const char *wrong = read_block(entry, block);
        if (wrong != NULL)
            return wrong;
        if (strchr("xgLK", entry->type) == NULL)
            break;
        wrong = read_extension(&extension, entry, source);
        if (wrong != NULL)
            return wrong;
    }
    apply(&extension, entry);
    size_t length = strlen(entry->name);
    if (entry->type == TAR_FILE && length > 0 && entry->name[length - 1] == '/')
        entry->type = TAR_FOLDER; /* as the oldest form tells it */
    return NULL;
}
