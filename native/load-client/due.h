/* SPDX-License-Identifier: Apache-2.0 */
/* Connections by when something is due for them: a pause is over, or a request's time. A heap. */
#ifndef VT_DUE_H
#define VT_DUE_H

#include "load-client/connection.h"

struct due {
    struct connection **items; /* from 1 */
    unsigned count;
};

/* Put one in, or move it, by its `due`. */
void due_set(struct due *due, struct connection *connection);
void due_remove(struct due *due, struct connection *connection);

#endif
