/* SPDX-License-Identifier: Apache-2.0 */
#include "load-client/redis.h"

#include <string.h>

#define MOST_BULK (UINT64_C(512) << 20)

void redis_start(struct redis *redis) {
    memset(redis, 0, offsetof(struct redis, line));
    redis->held = 0;
    redis->pending = redis->items = 1;
}

static void item_ends(struct redis *redis) {
    redis->state = --redis->pending == 0 ? REDIS_DONE : REDIS_LINE_IN;
}

/* A length behind its type; -1 stands for nothing. */
static bool length_of(const char *text, uint64_t most, uint64_t *value, bool *nothing) {
    *nothing = strcmp(text, "-1") == 0;
    *value = 0;
    if (*nothing)
        return true;
    if (*text == '\0')
        return false;
    for (; *text >= '0' && *text <= '9'; text++) {
        *value = 10 * *value + (uint64_t)(*text - '0');
        if (*value > most)
            return false;
    }
    return *text == '\0';
}

static void line_ends(struct redis *redis, redis_sink *sink, void *context) {
    const char *line = redis->line;
    uint64_t length;
    bool nothing;
    if (redis->held > 0 && line[redis->held - 1] == '\r')
        redis->held--;
    redis->line[redis->held] = '\0';
    size_t held = redis->held;
    redis->held = 0;
    redis->state = REDIS_BAD;
    switch (line[0]) {
    case '-':
        redis->error = true;
        __attribute__((fallthrough));
    case '+':
    case ':':
        sink(context, line + 1, held - 1);
        item_ends(redis);
        return;
    case '$':
        if (!length_of(line + 1, MOST_BULK, &length, &nothing))
            return;
        redis->left = length;
        if (nothing)
            item_ends(redis);
        else
            redis->state = length > 0 ? REDIS_BULK : REDIS_BULK_END;
        return;
    case '*':
        if (!length_of(line + 1, REDIS_ITEMS, &length, &nothing) || redis->items + length > REDIS_ITEMS)
            return;
        redis->items += length;
        redis->pending += length;
        item_ends(redis);
        return;
    default:
        return;
    }
}

void redis_add(struct redis *redis, const char *data, size_t length, redis_sink *sink, void *context) {
    while (length > 0 && redis->state != REDIS_DONE && redis->state != REDIS_BAD) {
        if (redis->state == REDIS_BULK) {
            size_t part = redis->left < length ? (size_t)redis->left : length;
            sink(context, data, part);
            data += part;
            length -= part;
            redis->left -= part;
            if (redis->left == 0)
                redis->state = REDIS_BULK_END;
            continue;
        }
        char next = *data++;
        length--;
        if (redis->state == REDIS_BULK_END) {
            if (next == '\n')
                item_ends(redis);
            else if (next != '\r')
                redis->state = REDIS_BAD;
        } else if (next == '\n')
            line_ends(redis, sink, context);
        else if (redis->held < REDIS_LINE - 1)
            redis->line[redis->held++] = next;
        else
            redis->state = REDIS_BAD;
    }
}
