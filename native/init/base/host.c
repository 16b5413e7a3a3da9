/* SPDX-License-Identifier: Apache-2.0 */
#include "init/base/host.h"

#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "init/base/event_loop.h"
#include "init/base/incoming.h"
#include "init/base/serial_line.h"

static struct wire_decoder decoder;
static wire_sink *hears;

static void hear(struct watch *watch, short events) {
    (void)events;
    uint8_t data[512];
    ssize_t got = read(watch->fd, data, sizeof data);
    if (got > 0)
        wire_decode(&decoder, data, (size_t)got, hears, NULL);
}

static void hear_port(struct watch *watch, short events) {
    (void)events;
    if (!incoming_take())
        watch->events = 0; /* the line is still good to speak on */
}

void host_listen(const uint8_t key[WIRE_KEY], wire_sink *sink) {
    static struct watch host;
    memcpy(decoder.key, key, sizeof decoder.key);
    hears = sink;
    incoming_to(sink);
    loop_add(&host, line_fd(), POLLIN, line_is_port() ? hear_port : hear);
}
