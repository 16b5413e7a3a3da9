/* SPDX-License-Identifier: Apache-2.0 */
/* Answers, and whether they are right: shared by init (commands) and client (requests). */
#ifndef VT_VERDICT_H
#define VT_VERDICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/records.h"
#include "common/sha256.h"

#define HEAD 384

/* Looks for a text in a stream (Knuth, Morris, Pratt). */
struct match {
    const char *needle;
    size_t length, held;
    uint16_t *back;
    bool found;
};

bool match_start(struct match *match, const char *needle); /* NULL: nothing to look for. False: no memory. */
void match_again(struct match *match);
void match_add(struct match *match, const char *data, size_t length);

/* One answer. `error` (not NULL): there was none, for this reason. -1: no such figure. */
struct answer {
    const char *error;
    int status, exit_code;
    uint64_t length;
    struct sha256 hash;
    uint8_t digest[32];
    bool contains;
    char head[HEAD];
    size_t head_length;
};

void answer_start(struct answer *answer);
void answer_add(struct answer *answer, const char *data, size_t length);
void answer_end(struct answer *answer);

struct verdict {
    int done, right;
    bool all_same; /* every answer had the first one's body */
    struct answer first, wrong;
    char why[200]; /* the first wrong answer's fault */
};

void verdict_start(struct verdict *verdict);
/* Judge one answer; true when it is right. */
bool verdict_add(struct verdict *verdict, const struct step *step, const struct answer *answer);
/* "key=value" items, each ended by a NUL, into `out`; how many bytes. */
size_t verdict_print(const struct verdict *verdict, char *out, size_t room);

#endif
