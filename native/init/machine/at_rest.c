/* SPDX-License-Identifier: Apache-2.0 */
/* Has the machine come to rest? What the kernel began at boot (self-tests, probes) may run on behind a container that
 * is ready long since; a load that is counted must not pay for it. */
#include "init/machine/at_rest.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool at_rest(void) {
    char text[64];
    int fd = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0)
        close(fd);
    if (got <= 0)
        return true;
    text[got] = '\0';
    /* Three averages, then running/all: of those that run, one is this process. */
    const char *word = text;
    for (int before = 0; before < 3 && word != NULL; before++)
        word = strchr(word, ' ') != NULL ? strchr(word, ' ') + 1 : NULL;
    return word == NULL || strtoul(word, NULL, 10) <= 1;
}
