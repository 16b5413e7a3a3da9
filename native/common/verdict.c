/* SPDX-License-Identifier: Apache-2.0 */
#include "common/verdict.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool match_start(struct match *match, const char *needle) {
    memset(match, 0, sizeof *match);
    match->needle = needle;
    match->length = needle == NULL ? 0 : strnlen(needle, UINT16_MAX);
    match->back = calloc(match->length + 1, sizeof *match->back);
    if (match->back == NULL)
        return false;
    for (size_t i = 1, held = 0; i < match->length; i++) {
        while (held > 0 && needle[i] != needle[held])
            held = match->back[held - 1];
        if (needle[i] == needle[held])
            held++;
        match->back[i] = (uint16_t)held;
    }
    match_again(match);
    return true;
}

void match_again(struct match *match) {
    match->held = 0;
    match->found = match->length == 0;
}

void match_add(struct match *match, const char *data, size_t length) {
    for (size_t i = 0; i < length && !match->found; i++) {
        while (match->held > 0 && data[i] != match->needle[match->held])
            match->held = match->back[match->held - 1];
        if (data[i] == match->needle[match->held])
            match->held++;
        match->found = match->held == match->length;
    }
}

void answer_start(struct answer *answer) {
    memset(answer, 0, sizeof *answer);
    answer->status = answer->exit_code = -1;
    sha256_start(&answer->hash);
}

void answer_add(struct answer *answer, const char *data, size_t length) {
    sha256_add(&answer->hash, data, length);
    answer->length += length;
    size_t part = HEAD - answer->head_length < length ? HEAD - answer->head_length : length;
    memcpy(answer->head + answer->head_length, data, part);
    answer->head_length += part;
}

void answer_end(struct answer *answer) {
    sha256_end(&answer->hash, answer->digest);
}

void verdict_start(struct verdict *verdict) {
    memset(verdict, 0, sizeof *verdict);
    verdict->all_same = true;
}

/* What is wrong with an answer, into `why`; false when nothing is. */
static bool fault(const struct step *step, const struct answer *answer, char why[200]) {
    char hex[65];
    if (answer->error != NULL)
        return snprintf(why, 200, "%s", answer->error) > 0;
    if (step->status >= 0 && answer->status != step->status)
        return snprintf(why, 200, "status %d, not %d", answer->status, step->status) > 0;
    if (step->exit_code >= 0 && answer->exit_code != step->exit_code)
        return snprintf(why, 200, "exit status %d, not %d", answer->exit_code, step->exit_code) > 0;
    sha256_hex(answer->digest, hex);
    if (step->sha256 != NULL && strcmp(hex, step->sha256) != 0)
        return snprintf(why, 200, "%llu bytes with SHA-256 %.12s…, not %.12s…", (unsigned long long)answer->length, hex,
                        step->sha256) > 0;
    if (step->contains != NULL && !answer->contains)
        return snprintf(why, 200, "does not contain '%.100s'", step->contains) > 0;
    return false;
}

bool verdict_add(struct verdict *verdict, const struct step *step, const struct answer *answer) {
    char why[200];
    bool wrong = fault(step, answer, why);
    if (verdict->done == 0)
        verdict->first = *answer;
    else if (memcmp(verdict->first.digest, answer->digest, 32) != 0 || verdict->first.status != answer->status)
        verdict->all_same = false;
    if (wrong && verdict->done == verdict->right) {
        verdict->wrong = *answer;
        memcpy(verdict->why, why, sizeof why);
    }
    verdict->done++;
    verdict->right += !wrong;
    return !wrong;
}

struct text {
    char *out;
    size_t length, room;
};

/* One item; whatever does not fit is cut. */
static void item(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void item(struct text *text, const char *format, ...) {
    size_t room = text->room - text->length;
    if (room < 2)
        return;
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text->out + text->length, room, format, args);
    va_end(args);
    if (length > 0)
        text->length += ((size_t)length < room ? (size_t)length : room - 1) + 1;
}

static void print_answer(struct text *text, const char *name, const struct answer *answer) {
    char hex[65], head[HEAD + 1];
    sha256_hex(answer->digest, hex);
    item(text, "%s.status=%d", name, answer->status);
    item(text, "%s.exit=%d", name, answer->exit_code);
    item(text, "%s.length=%llu", name, (unsigned long long)answer->length);
    item(text, "%s.sha256=%s", name, hex);
    if (answer->error != NULL)
        item(text, "%s.error=%s", name, answer->error);
    for (size_t i = 0; i < answer->head_length; i++)
        head[i] = answer->head[i] != '\0' ? answer->head[i] : '?';
    head[answer->head_length] = '\0';
    item(text, "%s.head=%s", name, head);
}

size_t verdict_print(const struct verdict *verdict, char *out, size_t room) {
    struct text text = {out, 0, room};
    item(&text, "done=%d", verdict->done);
    item(&text, "right=%d", verdict->right);
    item(&text, "same=%d", verdict->all_same);
    if (verdict->done > 0)
        print_answer(&text, "first", &verdict->first);
    if (verdict->done > verdict->right) {
        item(&text, "why=%s", verdict->why);
        print_answer(&text, "wrong", &verdict->wrong);
    }
    return text.length;
}
