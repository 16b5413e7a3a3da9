/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sampler of a system with an init of its own, which the attendant starts from its disk:
 *
 *     sampler sample EVERY_MS COUNT
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "sampler/sample.h"

int main(int argc, char **argv) {
    if (argc != 4 || strcmp(argv[1], "sample") != 0) {
        fprintf(stderr, "use: sampler sample EVERY_MS COUNT\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    return sample_until_end(argv[2], argv[3]);
}
