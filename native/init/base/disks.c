/* SPDX-License-Identifier: Apache-2.0 */
#include "init/base/disks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "init/base/power_off.h"

/* What the kernel calls the n-th virtio disk: sixteen minors each, from that of the disk we stand on. Partitions of one
 * disk, where ours are such, follow each other. */
dev_t disk_number(int n) {
    static dev_t first;
    static unsigned step = 16;
    struct stat root;
    if (first == 0) {
        if (stat("/", &root) != 0)
            fatal("", "stat(/): %s", strerror(errno));
        const char *how = getenv("VT_DISKS");
        if (how != NULL && strcmp(how, "partitions") == 0)
            step = 1;
        first = makedev(major(root.st_dev), minor(root.st_dev) & ~(step - 1));
    }
    return makedev(major(first), minor(first) + step * (unsigned)n);
}
