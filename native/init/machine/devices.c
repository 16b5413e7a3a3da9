/* SPDX-License-Identifier: Apache-2.0 */
/* The device nodes that container engines give. /dev/console is there with a terminal only, which it then is. */
#include "init/machine/devices.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "init/base/serial_line.h"

static const struct {
    const char *path;
    mode_t mode;
    unsigned major, minor;
} NODES[] = {
    {"/dev/null", 0666, 1, 3},   {"/dev/zero", 0666, 1, 5},    {"/dev/full", 0666, 1, 7},
    {"/dev/random", 0666, 1, 8}, {"/dev/urandom", 0666, 1, 9}, {"/dev/tty", 0666, 5, 0},
};

static const struct {
    const char *path, *target;
} LINKS[] = {
    {"/dev/fd", "/proc/self/fd"},       {"/dev/stdin", "/proc/self/fd/0"}, {"/dev/stdout", "/proc/self/fd/1"},
    {"/dev/stderr", "/proc/self/fd/2"}, {"/dev/ptmx", "pts/ptmx"},
};

void devices_make(void) {
    mode_t usual = umask(0);
    for (size_t i = 0; i < sizeof NODES / sizeof *NODES; i++) {
        bool done = mknod(NODES[i].path, S_IFCHR | NODES[i].mode, makedev(NODES[i].major, NODES[i].minor)) == 0;
        if (!done && errno != EEXIST)
            line_note("", "mknod(%s): %s", NODES[i].path, strerror(errno));
    }
    for (size_t i = 0; i < sizeof LINKS / sizeof *LINKS; i++)
        if (symlink(LINKS[i].target, LINKS[i].path) != 0 && errno != EEXIST)
            line_note("", "symlink(%s): %s", LINKS[i].path, strerror(errno));
    umask(usual);
}
