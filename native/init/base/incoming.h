/* SPDX-License-Identifier: Apache-2.0 */
/* What comes in on a virtio port. */
#ifndef VT_INCOMING_H
#define VT_INCOMING_H

#include <stdbool.h>
#include <stdint.h>

#include "common/wire.h"

/* From now on a virtio port is the line, on which frames with this key count. */
void incoming_begin(int fd, const uint8_t key[WIRE_KEY]);
/* Each frame is given to `sink` from now on. */
void incoming_to(wire_sink *sink);
/* Take what is there; false once nothing more can come. */
bool incoming_take(void);
/* Wait until the host has heard all: what it has not taken would be lost with the machine. Nothing on a serial line. */
void incoming_wait_for_host(void);

#endif
