/* SPDX-License-Identifier: Apache-2.0 */
#include "init/machine/module_request.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define KMSG "/dev/.vt-kmsg"

/* We are also what a packaged kernel calls to load a module (stage 1 says so): "init -q -- NAME". There is none to
 * load, but who asked for what is in the kernel's log, and so in the trace. */
int note_module_request(const char *name) {
    char line[160];
    int length = snprintf(line, sizeof line, "<6>vmtailor: module requested: %.100s\n", name);
    if (mknod(KMSG, S_IFCHR | 0600, makedev(1, 11)) != 0 && errno != EEXIST)
        return 1;
    int fd = open(KMSG, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    unlink(KMSG);
    struct stat found; /* the container may have put something else there */
    if (fd < 0 || fstat(fd, &found) != 0 || !S_ISCHR(found.st_mode) || found.st_rdev != makedev(1, 11))
        return 2;
    return write(fd, line, (size_t)length) < 0 ? 2 : 1;
}
