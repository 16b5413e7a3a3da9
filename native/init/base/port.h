/* SPDX-License-Identifier: Apache-2.0 */
/* A virtio port to the host. */
#ifndef VT_PORT_H
#define VT_PORT_H

#include "common/wire.h"

/* Open the port on which the host sends a greeting with this key, and make it the line. That there is none is fatal. */
void port_open(const uint8_t key[WIRE_KEY]);

#endif
