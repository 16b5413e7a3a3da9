// SPDX-License-Identifier: Apache-2.0
#include "supervise/bytes.h"

#include <stdlib.h>
#include <string.h>

#define LEAST_ROOM 4096

size_t bytes_left(const struct bytes *bytes) {
    return bytes->to - bytes->from;
}

const uint8_t *bytes_first(const struct bytes *bytes) {
    return bytes->data + bytes->from;
}

static bool make_room(struct bytes *bytes, size_t length) {
    size_t left = bytes_left(bytes), room = bytes->room;
    if (bytes->to + length <= room)
        return true;
    if (left + length <= room / 2) {
        memmove(bytes->data, bytes->data + bytes->from, left);
    } else {
        while (room < 2 * (left + length))
            room = room ? 2 * room : LEAST_ROOM;
        uint8_t *grown = malloc(room);
        if (!grown)
            return false;
        if (left)
            memcpy(grown, bytes->data + bytes->from, left);
        free(bytes->data);
        bytes->data = grown;
        bytes->room = room;
    }
    bytes->from = 0;
    bytes->to = left;
    return true;
}

bool bytes_add(struct bytes *bytes, const void *data, size_t length) {
    if (length == 0)
        return true;
    if (!make_room(bytes, length))
        return false;
    memcpy(bytes->data + bytes->to, data, length);
    bytes->to += length;
    return true;
}

void bytes_drop(struct bytes *bytes, size_t length) {
    bytes->from += length;
    if (bytes->from == bytes->to)
        bytes->from = bytes->to = 0;
}

void bytes_free(struct bytes *bytes) {
    free(bytes->data);
    *bytes = (struct bytes){0};
}

void bytes_add_tail(struct bytes *bytes, const void *data, size_t length, size_t most) {
    const uint8_t *from = data;
    if (length > most) {
        from += length - most;
        length = most;
    }
    size_t left = bytes_left(bytes);
    if (left + length > most)
        bytes_drop(bytes, left + length - most);
    bytes_add(bytes, from, length);
}

void bytes_add_head(struct bytes *bytes, const void *data, size_t length, size_t most) {
    size_t left = bytes_left(bytes), room = left < most ? most - left : 0;
    bytes_add(bytes, data, length < room ? length : room);
}
