/* SPDX-License-Identifier: Apache-2.0 */
/* What a further process in the container is to be, as the host says it: records, with an empty one at the end. */
#ifndef VT_ORDER_H
#define VT_ORDER_H

#include <stdbool.h>
#include <stddef.h>

#include "common/records.h"

/* NULL: as the container's own. The strings point into the text. */
struct order {
    struct list argv, env;
    const char *user, *cwd;
    const char *builtin, *path; /* one of our own programs, and what it is about */
    bool terminal, takes_stdin, privileged, detach, follow;
    int rows, cols;
};

/* Is a text that came in parts whole? */
bool order_is_whole(const char *text, size_t length);
/* Read a whole text. Returns NULL, or what is wrong; order_free in any case. */
const char *order_read(struct order *order, char *text, size_t length);
void order_free(struct order *order);

#endif
