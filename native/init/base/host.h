/* SPDX-License-Identifier: Apache-2.0 */
/* What the host says: frames that come in on the line. */
#ifndef VT_HOST_H
#define VT_HOST_H

#include <stdint.h>

#include "common/wire.h"

/* From now on each frame with this key is given to `sink`, out of the loop of events. */
void host_listen(const uint8_t key[WIRE_KEY], wire_sink *sink);

#endif
