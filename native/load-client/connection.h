/* SPDX-License-Identifier: Apache-2.0 */
/* One connection of a load, or one command after the other: a request at a time, its answer judged as it comes in. */
#ifndef VT_CONNECTION_H
#define VT_CONNECTION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/http.h"
#include "load-client/plan.h"
#include "load-client/redis.h"

enum failure { RIGHT, REFUSED, RESET, TIMEOUT, UNSENT, WRONG, OTHER, FAILURES };

enum progress { FREE, PAUSED, CONNECTING, SENDING, RECEIVING, DONE };

struct connection {
    int fd;    /* of the socket, or of a command's output; -1: none is open */
    pid_t pid; /* of a command that runs, else 0 */
    enum progress progress;
    enum failure failure; /* once it is DONE */
    struct page *page;
    uint64_t session, call; /* which session, and which of its requests */
    uint64_t scheduled;     /* when this request was to begin */
    uint64_t due;           /* when its time is over, or its pause */
    unsigned place;         /* in the heap of what is due, from 1; 0: not there */
    size_t sent;
    bool reused, heard; /* an earlier request had this connection; something was answered to this one */
    bool closes;        /* the server closes it behind this answer */
    uint64_t length;    /* of the answer's body */
    uint64_t mix, word; /* a quick digest of it, and what is left of less than eight bytes */
    bool digesting;     /* no answer has been found right by its digest yet */
    struct sha256 hash;
    bool unequal; /* it is not the text that is right */
    struct match match;
    union {
        struct http http;
        struct redis redis;
    } reader;
};

/* Connect if needed, send, receive: as far as it goes without waiting. `why` gets the fault of a wrong answer. */
void connection_advance(struct connection *connection, const struct plan *plan, int poller, char why[200]);
/* Begin a request. */
void connection_ask(struct connection *connection, struct page *page);
/* End a request that has no answer. */
void connection_give_up(struct connection *connection, enum failure failure);
void connection_close(struct connection *connection);
/* Take a part of the answer. */
void connection_take(struct connection *connection, const char *data, size_t length);
/* Judge a whole answer by its status, and what came of it: the request is DONE. */
void connection_judge(struct connection *connection, int status, char why[200]);

#endif
