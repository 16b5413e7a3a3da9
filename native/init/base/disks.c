/* SPDX-License-Identifier: Apache-2.0 */
#include "init/base/disks.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "init/base/power_off.h"

/* What the kernel calls the n-th virtio disk: sixteen minors each, from that of the disk we stand on. */
dev_t disk_number(int n) {
    static dev_t first;
    struct stat root;
    if (first == 0) {
        if (stat("/", &root) != 0)
            fatal("", "stat(/): %s", strerror(errno));
        first = makedev(major(root.st_dev), minor(root.st_dev) & ~15u);
    }
    return makedev(major(first), minor(first) + 16u * (unsigned)n);
}
