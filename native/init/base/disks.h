/* SPDX-License-Identifier: Apache-2.0 */
/* Disks by number: the kernel names them, and we ask it for no names. */
#ifndef VT_DISKS_H
#define VT_DISKS_H

#include <sys/types.h>

/* The device number of the n-th virtio disk, or partition where VT_DISKS says so (0 is the root). The first call must
 * come while / is still that disk. */
dev_t disk_number(int n);

#endif
