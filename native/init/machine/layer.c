/* SPDX-License-Identifier: Apache-2.0 */
#include "init/machine/layer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "init/base/disks.h"
#include "init/base/power_off.h"
#include "init/settings/settings.h"

/* The record: the number of the disk, and the options of its mount. */
void layer_mount(const char *folder) {
    const struct surroundings *more = settings.surroundings;
    char node[64], *options;
    if (more == NULL || more->layer == NULL)
        return;
    int number = (int)strtol(more->layer, &options, 10);
    snprintf(node, sizeof node, "%s/layer", folder);
    if (mknod(node, S_IFBLK | 0600, disk_number(number)) != 0)
        fatal("", "mknod(%s): %s", node, strerror(errno));
    /* Over the memory in which the node lies. */
    if (mount(node, folder, "ext4", 0, options + (*options == ' ')) != 0)
        fatal(errno == ENODEV ? "EXT4_FS" : "", "mount(the disk of what is written, as ext4): %s", strerror(errno));
}

void layer_folder(const char *path) {
    if (mkdir(path, 0755) != 0 && errno != EEXIST)
        fatal("", "mkdir(%s): %s", path, strerror(errno));
}
