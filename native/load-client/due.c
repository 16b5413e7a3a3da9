/* SPDX-License-Identifier: Apache-2.0 */
#include "load-client/due.h"

static void put(struct due *due, unsigned place, struct connection *connection) {
    due->items[place] = connection;
    connection->place = place;
}

static void settle(struct due *due, struct connection *connection) {
    unsigned place = connection->place;
    for (; place > 1 && due->items[place / 2]->due > connection->due; place /= 2)
        put(due, place, due->items[place / 2]);
    for (unsigned next; (next = 2 * place) <= due->count; place = next) {
        if (next < due->count && due->items[next + 1]->due < due->items[next]->due)
            next++;
        if (due->items[next]->due >= connection->due)
            break;
        put(due, place, due->items[next]);
    }
    put(due, place, connection);
}

void due_set(struct due *due, struct connection *connection) {
    if (connection->place == 0)
        put(due, ++due->count, connection);
    settle(due, connection);
}

void due_remove(struct due *due, struct connection *connection) {
    unsigned place = connection->place;
    if (place == 0)
        return;
    connection->place = 0;
    struct connection *last = due->items[due->count--];
    if (last == connection)
        return;
    put(due, place, last);
    settle(due, last);
}
