// SPDX-License-Identifier: Apache-2.0
#include "supervise/hear.h"

#include <string.h>

#define MAGIC_0 0xF5
#define MAGIC_1 0x54

static const uint8_t open_key[WIRE_KEY];

static bool is_tagged(const uint8_t key[WIRE_KEY], const uint8_t *held, size_t length) {
    uint8_t made[WIRE_HEADER + WIRE_PAYLOAD], different = 0;
    wire_encode(made, key, (char)held[2], held[3], held + WIRE_HEADER, length);
    for (size_t i = 0; i < WIRE_HEADER; i++)
        different |= made[i] ^ held[i];
    return !different;
}

// Before init knows the key, its first words and those of stage 1 come under the open one.
static bool is_ours(struct hearing *hearing, const uint8_t *held, size_t length) {
    if (is_tagged(hearing->key, held, length))
        return hearing->keyed = true;
    return !hearing->keyed && strchr("HMNFD", held[2]) && held[2] && is_tagged(open_key, held, length);
}

// How many bytes at the start of what is held are done with: 0 when more must come first.
static size_t take(struct hearing *hearing) {
    const uint8_t *held = hearing->held;
    const uint8_t *mark = memchr(held, MAGIC_0, hearing->length);
    size_t before = mark ? (size_t)(mark - held) : hearing->length;
    if (before > 0) {
        hearing->text(hearing->context, held, before);
        return before;
    }
    bool none = hearing->length >= 2 && held[1] != MAGIC_1;
    if (!none && hearing->length < WIRE_HEADER)
        return 0;
    size_t length = none ? 0 : held[4] | (size_t)held[5] << 8;
    if (!none && length <= WIRE_PAYLOAD && hearing->length < WIRE_HEADER + length)
        return 0;
    if (none || length > WIRE_PAYLOAD || !is_ours(hearing, held, length)) {
        hearing->text(hearing->context, held, 1);
        return 1;
    }
    hearing->frame(hearing->context, (char)held[2], held + WIRE_HEADER, length);
    return WIRE_HEADER + length;
}

static void drop(struct hearing *hearing, size_t done) {
    hearing->length -= done;
    memmove(hearing->held, hearing->held + done, hearing->length);
}

void hear(struct hearing *hearing, const uint8_t *data, size_t length) {
    while (length > 0) {
        size_t room = sizeof(hearing->held) - hearing->length;
        size_t part = length < room ? length : room;
        memcpy(hearing->held + hearing->length, data, part);
        hearing->length += part;
        data += part;
        length -= part;
        size_t done;
        while (hearing->length > 0 && (done = take(hearing)) > 0)
            drop(hearing, done);
    }
}

void hear_end(struct hearing *hearing) {
    while (hearing->length > 0) {
        size_t done = take(hearing);
        if (done == 0) {
            hearing->text(hearing->context, hearing->held, 1);
            done = 1;
        }
        drop(hearing, done);
    }
}

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

static size_t take_part(struct port_hearing *port, const uint8_t *data, size_t length) {
    size_t part = least(length, port->left);
    char type = (char)port->head[2];
    port->left -= part;
    if (type == WIRE_STDOUT || type == WIRE_STDERR) {
        if (part > 0)
            port->frame(port->context, type, data, part);
        return part;
    }
    memcpy(port->text + port->text_length, data, part);
    port->text_length += part;
    if (port->left == 0)
        port->frame(port->context, type, port->text, port->text_length);
    return part;
}

static void begin(struct port_hearing *port) {
    size_t length = port->head[4] | (size_t)port->head[5] << 8;
    port->damaged = !wire_is_port_head(port->head, port->key) || length > WIRE_BLOCK;
    port->head_length = port->text_length = 0;
    port->left = port->damaged ? 0 : length;
    if (!port->damaged && length == 0)
        take_part(port, port->head, 0);
}

void hear_port(struct port_hearing *port, const uint8_t *data, size_t length) {
    while (length > 0 && !port->damaged) {
        size_t done;
        if (port->left > 0) {
            done = take_part(port, data, length);
        } else {
            done = least(length, WIRE_HEADER - port->head_length);
            memcpy(port->head + port->head_length, data, done);
            port->head_length += done;
            if (port->head_length == WIRE_HEADER)
                begin(port);
        }
        data += done;
        length -= done;
    }
}
