/* SPDX-License-Identifier: Apache-2.0 */
/* The second disk: what this one run is told, and the key of its frames. */
#ifndef VT_RUN_VOLUME_H
#define VT_RUN_VOLUME_H

#include "common/records.h"

/* Add its records to `settings`, tag frames with its key, and overwrite the key on the disk. Whatever is wrong with it
 * is fatal. */
void run_volume_read(struct settings *settings);

#endif
