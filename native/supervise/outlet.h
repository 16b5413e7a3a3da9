// SPDX-License-Identifier: Apache-2.0
// A way out for bytes that never keeps us waiting: a bounded queue before a stream that others may read slowly, or not
// at all.
#ifndef VT_SUPERVISE_OUTLET_H
#define VT_SUPERVISE_OUTLET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "supervise/bytes.h"

enum way { WAY_PLAIN, WAY_NONBLOCKING, WAY_SOCKET, WAY_TIMED };

struct outlet {
    int fd;
    enum way way;
    struct bytes queue;
    int failed;       // the errno that ended it, or 0: what comes later goes nowhere
    uint64_t dropped; // bytes that found no room
};

// Make one for a stream that stays the caller's.
void outlet_open(struct outlet *outlet, int fd);

// Queue bytes, and write what goes without waiting; what has no room is dropped, and counted.
void outlet_put(struct outlet *outlet, const void *data, size_t length);

// Write what goes without waiting: the stream can be written to.
void outlet_write(struct outlet *outlet);

// Is so much queued that whoever fills it should wait?
bool outlet_full(const struct outlet *outlet);

// Drop what is queued; returns how many bytes did not arrive, those dropped before included.
uint64_t outlet_close(struct outlet *outlet);

#endif
