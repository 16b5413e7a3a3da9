/* SPDX-License-Identifier: Apache-2.0 */
/* A network that QEMU was told to close ("restrict=on") is opened here, where the policy stands before what it sends.
 * So where this library is not loaded, or does not stand between QEMU and libslirp, the network stays closed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "calls.h"

/* How SlirpConfig begins, in each version of it. */
struct config {
    uint32_t version;
    int restricted;
};

typedef void *new_network(struct config *config, const void *callbacks, void *opaque);

EXPORTED void *slirp_new(struct config *config, const void *callbacks, void *opaque) {
    new_network *real = NULL;
    *(void **)&real = dlsym(RTLD_NEXT, "slirp_new");
    if (real == NULL) {
        fputs("vmtailor: libslirp has no slirp_new\n", stderr);
        exit(1);
    }
    if (getenv(PROBE_VARIABLE) != NULL)
        fputs("vmtailor: the guard stands\n", stderr);
    else if (config->restricted == 1 && reach() != REACH_CLOSED)
        config->restricted = 0;
    return real(config, callbacks, opaque);
}
