/* SPDX-License-Identifier: Apache-2.0 */
#include "init/builtin/builtin.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "init/builtin/archive.h"
#include "init/builtin/extract.h"
#include "init/builtin/stats.h"

int builtin(int argc, char **argv) {
    if (argc != 5)
        return 2;
    const char *name = argv[2], *path = argv[3];
    signal(SIGPIPE, SIG_IGN);
    umask(0);
    if (strcmp(name, "archive") == 0)
        return archive(path, argv[4][0] == '1');
    if (strcmp(name, "extract") == 0)
        return extract(path);
    if (strcmp(name, "stats") == 0)
        return stats();
    if (strcmp(name, "top") == 0)
        return top();
    fprintf(stderr, "there is no builtin '%s'\n", name);
    return 127;
}
