/* SPDX-License-Identifier: Apache-2.0 */
/* Entries of a POSIX tar: written with an extended header where a field is too small, read in that form and in GNU's.
 */
#ifndef VT_TAR_H
#define VT_TAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TAR_BLOCK 512
#define TAR_NAME 4096 /* with its NUL */

enum tar_type {
    TAR_FILE = '0',
    TAR_HARD_LINK = '1',
    TAR_LINK = '2',
    TAR_CHARACTER = '3',
    TAR_BLOCK_DEVICE = '4',
    TAR_FOLDER = '5',
    TAR_FIFO = '6',
};

struct tar_entry {
    char type;
    char name[TAR_NAME], link[TAR_NAME];
    unsigned mode, major, minor;
    uint64_t uid, gid, size;
    int64_t mtime; /* s since 1970 */
};

/* The bytes of an entry's head, at most TAR_HEAD; returns how many. */
#define TAR_HEAD (TAR_BLOCK * 2 + 2 * TAR_NAME + 2 * TAR_BLOCK + 512)
size_t tar_head(uint8_t *out, const struct tar_entry *entry);

/* Give `length` more bytes to `data`, or fail: false. */
typedef bool tar_source(void *data, size_t length);

/* Read the next head. NULL, or what is wrong; at the archive's end `entry->type` is 0. */
const char *tar_next(struct tar_entry *entry, tar_source *source);

#endif
