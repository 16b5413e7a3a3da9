/* SPDX-License-Identifier: Apache-2.0 */
/* Has the machine come to rest? What the kernel began at boot (self-tests, probes) may run on behind a container that
 * is ready long since; a load that is counted must not pay for it. */
#include "init/machine/at_rest.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

bool at_rest(void) {
    char text[64];
    unsigned running;
    int fd = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0)
        close(fd);
    if (got <= 0)
        return true;
    text[got] = '\0';
    /* Three averages, then running/all: of those that run, one is this process. */
    return sscanf(text, "%*s %*s %*s %u/", &running) != 1 || running <= 1;
}
