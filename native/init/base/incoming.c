/* SPDX-License-Identifier: Apache-2.0 */
#include "init/base/incoming.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "init/base/serial_line.h"

#define PIECE 4096 /* what the kernel gives of a port at once */
#define MOST_PIECES 32

static struct wire_port *incoming; /* allocated: it would lie between what every boot uses */
static wire_sink *hears;
static bool heard_all;

void incoming_begin(int fd, const uint8_t key[WIRE_KEY]) {
    incoming = calloc(1, sizeof *incoming);
    if (incoming == NULL)
        return; /* the serial line will do */
    memcpy(incoming->key, key, sizeof incoming->key);
    line_take_port(fd);
}

void incoming_to(wire_sink *sink) {
    hears = sink;
}

static void hear(void *context, char type, const uint8_t *payload, size_t length) {
    if (type == WIRE_HEARD)
        heard_all = true;
    else if (hears != NULL)
        hears(context, type, payload, length);
}

bool incoming_take(void) {
    uint8_t data[PIECE];
    for (int pieces = 0; pieces < MOST_PIECES; pieces++) {
        ssize_t got = read(line_fd(), data, sizeof data);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            return true;
        if (got <= 0 || !wire_port_decode(incoming, data, (size_t)got, hear, NULL))
            return false;
    }
    return true;
}

void incoming_wait_for_host(void) {
    if (!line_is_port())
        return;
    line_send(WIRE_BYE, "", 0);
    while (incoming_take() && !heard_all)
        poll(&(struct pollfd){.fd = line_fd(), .events = POLLIN}, 1, -1);
}
