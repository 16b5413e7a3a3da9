/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What init runs in a container beside its programs, and which needs nothing of the image: an image may have no tar.
 *
 *     builtin archive|extract|stats|top PATH FOLLOW
 *     builtin dhcp INTERFACE HOSTNAME
 *     builtin sample EVERY_MS COUNT
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "builtin/archive.h"
#include "builtin/dhcp.h"
#include "builtin/extract.h"
#include "builtin/stats.h"
#include "sampler/sample.h"

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "use: builtin archive|extract|stats|top|dhcp|sample PATH FOLLOW\n");
        return 2;
    }
    const char *name = argv[1], *path = argv[2];
    signal(SIGPIPE, SIG_IGN);
    umask(0);
    if (strcmp(name, "archive") == 0)
        return archive(path, argv[3][0] == '1');
    if (strcmp(name, "extract") == 0)
        return extract(path);
    if (strcmp(name, "stats") == 0)
        return stats();
    if (strcmp(name, "top") == 0 || strcmp(name, "processes") == 0)
        return top();
    if (strcmp(name, "dhcp") == 0)
        return dhcp(path, argv[3]);
    if (strcmp(name, "sample") == 0)
        return sample_until_end(path, argv[3]);
    fprintf(stderr, "there is no builtin '%s'\n", name);
    return 127;
}
