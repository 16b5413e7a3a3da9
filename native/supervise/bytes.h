// SPDX-License-Identifier: Apache-2.0
// Bytes that wait, first in, first out.
#ifndef VT_SUPERVISE_BYTES_H
#define VT_SUPERVISE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bytes {
    uint8_t *data;
    size_t from, to, room; // what waits lies between `from` and `to`
};

// The bytes that wait.
size_t bytes_left(const struct bytes *bytes);
const uint8_t *bytes_first(const struct bytes *bytes);

// Append; false, and nothing is appended, when there is no memory.
bool bytes_add(struct bytes *bytes, const void *data, size_t length);

// Drop so many of the first.
void bytes_drop(struct bytes *bytes, size_t length);

// Drop all, and give the memory back.
void bytes_free(struct bytes *bytes);

// Append, and drop the first, so that at most `most` are left.
void bytes_add_tail(struct bytes *bytes, const void *data, size_t length, size_t most);

// Append as far as at most `most` are there then.
void bytes_add_head(struct bytes *bytes, const void *data, size_t length, size_t most);

#endif
