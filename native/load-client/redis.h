/* SPDX-License-Identifier: Apache-2.0 */
/* Reads one answer of Redis' protocol (RESP 2) as it comes in: texts and numbers, and what arrays hold of them. */
#ifndef VT_REDIS_H
#define VT_REDIS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REDIS_LINE 512
#define REDIS_ITEMS 1000000

enum redis_state { REDIS_LINE_IN, REDIS_BULK, REDIS_BULK_END, REDIS_DONE, REDIS_BAD };

struct redis {
    enum redis_state state;
    bool error;       /* the server said one */
    uint64_t left;    /* bytes of a text, its end included */
    uint64_t pending; /* items that are still to come, this one included */
    uint64_t items;   /* that were announced, in all */
    char line[REDIS_LINE];
    size_t held;
};

typedef void redis_sink(void *context, const char *data, size_t length);

void redis_start(struct redis *redis);
/* Take bytes; texts and numbers go to `sink`. The state says when it is done, or no such protocol. */
void redis_add(struct redis *redis, const char *data, size_t length, redis_sink *sink, void *context);

#endif
