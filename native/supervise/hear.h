// SPDX-License-Identifier: Apache-2.0
// The host's ear on a guest's line: frames (common/wire.h), and the text between them. Bytes come from a guest that
// nobody trusts: nothing here fails on them, and no more than one frame is held.
#ifndef VT_SUPERVISE_HEAR_H
#define VT_SUPERVISE_HEAR_H

#include <stdbool.h>

#include "common/wire.h"

struct hearing {
    uint8_t key[WIRE_KEY];
    bool keyed; // a frame with the key was heard: from then on no other counts
    uint8_t held[WIRE_HEADER + WIRE_PAYLOAD];
    size_t length;
    wire_sink *frame;
    void (*text)(void *context, const uint8_t *data, size_t length);
    void *context;
};

// Take bytes off the line.
void hear(struct hearing *hearing, const uint8_t *data, size_t length);

// What comes on a virtio port: frames alone, whose tag does not cover the payload.
struct port_hearing {
    uint8_t key[WIRE_KEY];
    bool damaged; // what came was no frame: nothing that follows can be told
    uint8_t head[WIRE_HEADER];
    size_t head_length, left;
    uint8_t text[WIRE_BLOCK];
    size_t text_length;
    wire_sink *frame; // gets each whole frame, and of output each part as it comes
    void *context;
};

void hear_port(struct port_hearing *port, const uint8_t *data, size_t length);

// The line has closed: what began like a frame and never became whole is text, and what stands in it counts.
void hear_end(struct hearing *hearing);

#endif
