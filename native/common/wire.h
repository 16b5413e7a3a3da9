/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames between guest and host on one line (docs/reference/guest-init.md).
 *
 *   0xF5 0x54 | type | sequence | length (2, little endian) | tag (8) | payload
 *
 * The tag is the start of SHA-256(key, type, sequence, length, payload): it tells a frame from console text, a whole
 * frame from a damaged one, and, since the container does not know the key, ours from a forged one.
 *
 * A virtio port loses nothing, carries nothing but frames, and only init can have it open. There the tag is that of a
 * frame without payload (whose length stands in it all the same), and a payload may be a block.
 */
#ifndef VT_WIRE_H
#define VT_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WIRE_HEADER 14
#define WIRE_PAYLOAD 2048
#define WIRE_BLOCK 32768 /* the longest payload on a port */
#define WIRE_KEY 16

/* Frames to the host. */
enum wire_out {
    WIRE_HELLO = 'H',
    WIRE_STDOUT = 'O',
    WIRE_STDERR = 'E',
    WIRE_MARK = 'M',
    WIRE_NOTE = 'N',
    WIRE_FATAL = 'F',
    WIRE_EXIT = 'X',
    WIRE_RESULT = 'R',
    WIRE_FILE = 'D',
    WIRE_CREDIT = 'C',
    WIRE_BYE = 'Q',
    /* Of a further process: its number is the first byte of the payload, in these and in those from the host. */
    WIRE_FURTHER_STDOUT = 'o',
    WIRE_FURTHER_STDERR = 'p',
    WIRE_FURTHER_EXIT = 'y',
    WIRE_FURTHER_CREDIT = 'c',
};

/* Frames from the host. */
enum wire_in {
    WIRE_STDIN = 'i',
    WIRE_STDIN_END = 'e',
    WIRE_SIGNAL = 's',
    WIRE_WINDOW = 'w',
    WIRE_GO = 'g',
    WIRE_GREETING = 'h',
    WIRE_TAKEN = 'c',
    WIRE_HEARD = 'b',
    WIRE_FURTHER = 'x',
    WIRE_FURTHER_STDIN = 'j',
    WIRE_FURTHER_STDIN_END = 'k',
    WIRE_FURTHER_SIGNAL = 'q',
    WIRE_FURTHER_WINDOW = 'v',
    WIRE_FURTHER_TAKEN = 'u',
};

struct wire_decoder {
    uint8_t key[WIRE_KEY];
    uint8_t held[WIRE_HEADER + WIRE_PAYLOAD];
    size_t length;
};

/* What comes in on a port. `text` holds what of a payload is not standard input, cut off where it is longer. */
struct wire_port {
    uint8_t key[WIRE_KEY];
    uint8_t head[WIRE_HEADER];
    size_t head_length, left;
    uint8_t text[2 * WIRE_PAYLOAD];
    size_t text_length;
};

typedef void wire_sink(void *context, char type, const uint8_t *payload, size_t length);

/* Write one frame to `out` (WIRE_HEADER + length bytes); returns its size. `length` is at most WIRE_PAYLOAD. */
size_t wire_encode(uint8_t *out, const uint8_t key[WIRE_KEY], char type, uint8_t sequence, const void *payload,
                   size_t length);

/* Write the head of a frame on a port to `out`; its payload of at most WIRE_BLOCK bytes follows. Returns WIRE_HEADER.
 */
size_t wire_port_head(uint8_t *out, const uint8_t key[WIRE_KEY], char type, uint8_t sequence, size_t length);

/* Is this the head of a frame on a port, with this key? */
bool wire_is_port_head(const uint8_t head[WIRE_HEADER], const uint8_t key[WIRE_KEY]);

/* Take bytes off a port; each whole frame goes to `sink`, and of standard input each part as it comes. False when they
 * are no frames: then nothing that follows can be told. */
bool wire_port_decode(struct wire_port *port, const uint8_t *data, size_t length, wire_sink *sink, void *context);

/* Take bytes off the line; each whole frame goes to `sink`, anything else is dropped. Never fails. */
void wire_decode(struct wire_decoder *decoder, const uint8_t *data, size_t length, wire_sink *sink, void *context);

#endif
