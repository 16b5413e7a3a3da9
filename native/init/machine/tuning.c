/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's settings that the machine was tuned to (VT_SET): PATH=VALUE, with `;` between them, and %20 for a space.
 * Paths are below /proc/sys and /sys. */
#include "init/machine/tuning.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "init/base/power_off.h"

#define PROC "/proc/sys/"
#define SYS "/sys/"
#define MOST 2048 /* bytes of the longest command line */

bool tuning_asks(const char *below) {
    for (const char *at = getenv("VT_SET"); at != NULL; at = strchr(at, ';')) {
        at += *at == ';';
        if (strncmp(at, below, strlen(below)) == 0)
            return true;
    }
    return false;
}

/* %20 becomes a space, in place. */
static void with_spaces(char *text) {
    char *to = text;
    for (const char *from = text; *from != '\0'; to++) {
        bool space = strncmp(from, "%20", 3) == 0;
        *to = space ? ' ' : *from;
        from += space ? 3 : 1;
    }
    *to = '\0';
}

static void set(const char *path, char *value) {
    with_spaces(value);
    size_t length = strlen(value);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        fatal("", "this kernel cannot set %s to %s: open: %s", path, value, strerror(errno));
    if (write(fd, value, length) != (ssize_t)length)
        fatal("", "this kernel does not set %s to %s: %s", path, value, strerror(errno));
    close(fd);
}

void tuning_apply(const char *below) {
    const char *wanted = getenv("VT_SET");
    char words[MOST];
    if (wanted == NULL)
        return;
    if (strlen(wanted) >= sizeof words)
        fatal("", "VT_SET is longer than %d bytes", MOST - 1);
    strcpy(words, wanted);
    char *rest = words;
    for (char *one; (one = strsep(&rest, ";")) != NULL;) {
        char *value = strchr(one, '=');
        if (value == NULL || strstr(one, "/../") != NULL ||
            (strncmp(one, PROC, strlen(PROC)) != 0 && strncmp(one, SYS, strlen(SYS)) != 0))
            fatal("", "VT_SET names no setting of the kernel: %s", one);
        if (strncmp(one, below, strlen(below)) != 0)
            continue;
        *value = '\0';
        set(one, value + 1);
    }
}
