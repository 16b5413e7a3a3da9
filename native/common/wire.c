/* SPDX-License-Identifier: Apache-2.0 */
#include "common/wire.h"

#include <string.h>

#include "common/sha256.h"

#define MAGIC_0 0xF5 /* in no UTF-8 text */
#define MAGIC_1 0x54
#define TAG 8

static void tag(const uint8_t key[WIRE_KEY], const uint8_t head[4], const void *payload, size_t length,
                uint8_t digest[32]) {
    struct sha256 hash;
    sha256_start(&hash);
    sha256_add(&hash, key, WIRE_KEY);
    sha256_add(&hash, head, 4);
    sha256_add(&hash, payload, length);
    sha256_end(&hash, digest);
}

/* Write a head for `length` bytes of payload; so many of them are in its tag. */
static size_t put_head(uint8_t *out, const uint8_t key[WIRE_KEY], char type, uint8_t sequence, size_t length,
                       const void *payload, size_t tagged) {
    uint8_t digest[32];
    out[0] = MAGIC_0;
    out[1] = MAGIC_1;
    out[2] = (uint8_t)type;
    out[3] = sequence;
    out[4] = (uint8_t)length;
    out[5] = (uint8_t)(length >> 8);
    tag(key, out + 2, payload, tagged, digest);
    memcpy(out + 6, digest, TAG);
    return WIRE_HEADER;
}

size_t wire_encode(uint8_t *out, const uint8_t key[WIRE_KEY], char type, uint8_t sequence, const void *payload,
                   size_t length) {
    put_head(out, key, type, sequence, length, payload, length);
    if (length > 0)
        memcpy(out + WIRE_HEADER, payload, length);
    return WIRE_HEADER + length;
}

/* How many bytes at the start of `held` are done with: 0 when more must come first. */
static size_t take(struct wire_decoder *decoder, wire_sink *sink, void *context) {
    const uint8_t *held = decoder->held;
    if (held[0] != MAGIC_0)
        return 1;
    if (decoder->length < WIRE_HEADER)
        return decoder->length >= 2 && held[1] != MAGIC_1 ? 1 : 0;
    size_t length = held[4] | (size_t)held[5] << 8;
    if (held[1] != MAGIC_1 || length > WIRE_PAYLOAD)
        return 1;
    if (decoder->length < WIRE_HEADER + length)
        return 0;
    uint8_t digest[32];
    tag(decoder->key, held + 2, held + WIRE_HEADER, length, digest);
    if (memcmp(digest, held + 6, TAG) != 0)
        return 1;
    sink(context, (char)held[2], held + WIRE_HEADER, length);
    return WIRE_HEADER + length;
}

void wire_decode(struct wire_decoder *decoder, const uint8_t *data, size_t length, wire_sink *sink, void *context) {
    while (length > 0) {
        size_t room = sizeof decoder->held - decoder->length;
        size_t part = length < room ? length : room;
        memcpy(decoder->held + decoder->length, data, part);
        decoder->length += part;
        data += part;
        length -= part;
        size_t done;
        while (decoder->length > 0 && (done = take(decoder, sink, context)) > 0) {
            decoder->length -= done;
            memmove(decoder->held, decoder->held + done, decoder->length);
        }
    }
}

size_t wire_port_head(uint8_t *out, const uint8_t key[WIRE_KEY], char type, uint8_t sequence, size_t length) {
    return put_head(out, key, type, sequence, length, NULL, 0);
}

bool wire_is_port_head(const uint8_t head[WIRE_HEADER], const uint8_t key[WIRE_KEY]) {
    uint8_t digest[32];
    if (head[0] != MAGIC_0 || head[1] != MAGIC_1)
        return false;
    tag(key, head + 2, NULL, 0, digest);
    return memcmp(digest, head + 6, TAG) == 0;
}

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

/* Take what there is of a payload; returns how many bytes. */
static size_t take_part(struct wire_port *port, const uint8_t *data, size_t length, wire_sink *sink, void *context) {
    size_t part = least(length, port->left);
    port->left -= part;
    if (port->head[2] == WIRE_STDIN) {
        if (part > 0)
            sink(context, WIRE_STDIN, data, part);
        return part;
    }
    size_t kept = least(part, sizeof port->text - port->text_length);
    memcpy(port->text + port->text_length, data, kept);
    port->text_length += kept;
    bool stream = port->head[2] == WIRE_FURTHER_STDIN;
    if (stream)
        port->left += part - kept;
    if (port->left == 0 || (stream && port->text_length == sizeof port->text)) {
        sink(context, (char)port->head[2], port->text, port->text_length);
        port->text_length = 1; /* the number of the process: of the next part, too */
    }
    return stream ? kept : part;
}

bool wire_port_decode(struct wire_port *port, const uint8_t *data, size_t length, wire_sink *sink, void *context) {
    while (length > 0) {
        size_t done;
        if (port->left == 0) {
            done = least(length, WIRE_HEADER - port->head_length);
            memcpy(port->head + port->head_length, data, done);
            port->head_length += done;
            if (port->head_length == WIRE_HEADER) {
                if (!wire_is_port_head(port->head, port->key))
                    return false;
                port->head_length = port->text_length = 0;
                port->left = port->head[4] | (size_t)port->head[5] << 8;
                if (port->left == 0)
                    take_part(port, data, 0, sink, context);
            }
        } else {
            done = take_part(port, data, length, sink, context);
        }
        data += done;
        length -= done;
    }
    return true;
}
