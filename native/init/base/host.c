/* SPDX-License-Identifier: Apache-2.0 */
#include "init/base/host.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "init/base/event_loop.h"
#include "init/base/power_off.h"
#include "init/base/serial_line.h"

#define PIECE 4096 /* what the kernel gives of a port at once */
#define MOST_PIECES 32

static struct wire_decoder decoder;
static struct wire_port *incoming; /* allocated: it would lie between what each boot uses */
static wire_sink *hears;
static bool heard_all;

static void hear(struct watch *watch, short events) {
    (void)events;
    uint8_t data[512];
    ssize_t got = read(watch->fd, data, sizeof data);
    if (got > 0)
        wire_decode(&decoder, data, (size_t)got, hears, NULL);
}

static void hear_frame(void *context, char type, const uint8_t *payload, size_t length) {
    if (type == WIRE_HEARD)
        heard_all = true;
    else if (hears != NULL)
        hears(context, type, payload, length);
}

/* Take what is there; false once nothing more can come. */
static bool take_port(int fd) {
    uint8_t data[PIECE];
    for (int pieces = 0; pieces < MOST_PIECES; pieces++) {
        ssize_t got = read(fd, data, sizeof data);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            return true;
        if (got <= 0 || !wire_port_decode(incoming, data, (size_t)got, hear_frame, NULL))
            return false;
    }
    return true;
}

static void hear_port(struct watch *watch, short events) {
    (void)events;
    if (!take_port(watch->fd))
        watch->events = 0; /* the line is still good to speak on */
}

void host_take_port(int fd, const uint8_t key[WIRE_KEY]) {
    incoming = calloc(1, sizeof *incoming);
    if (incoming == NULL)
        fatal("", "no memory for the virtio port");
    memcpy(incoming->key, key, sizeof incoming->key);
    line_take_port(fd);
}

void host_listen(const uint8_t key[WIRE_KEY], wire_sink *sink) {
    static struct watch host;
    memcpy(decoder.key, key, sizeof decoder.key);
    hears = sink;
    loop_add(&host, line_fd(), POLLIN, line_is_port() ? hear_port : hear);
}

void host_wait(void) {
    if (!line_is_port())
        return;
    line_send(WIRE_BYE, "", 0);
    while (take_port(line_fd()) && !heard_all)
        poll(&(struct pollfd){.fd = line_fd(), .events = POLLIN}, 1, -1);
}
