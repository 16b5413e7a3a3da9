/* SPDX-License-Identifier: Apache-2.0 */
/* A network that QEMU was told to close ("restrict=on") is opened here, where the policy stands before what it sends.
 * So where this library is not loaded, or does not stand between QEMU and libslirp, the network stays closed. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"

/* How SlirpConfig begins, in each version of it. */
struct config {
    uint32_t version;
    int restricted;
};

typedef void *new_network(struct config *config, const void *callbacks, void *opaque);

/* As libslirp has it since 4.5; QEMU's own rules are of IPv4. */
typedef int open_port(void *network, const struct sockaddr *host, socklen_t host_size, const struct sockaddr *guest,
                      socklen_t guest_size, int flags);
#define UDP 1
#define NO_IPV4 2

static void open_ports(void *network, const char *guest_text, char *ports) {
    struct sockaddr_in6 guest = {.sin6_family = AF_INET6}, host = guest;
    open_port *open = NULL;
    *(void **)&open = dlsym(RTLD_NEXT, "slirp_add_hostxfwd");
    if (open == NULL || inet_pton(AF_INET6, guest_text, &guest.sin6_addr) != 1) {
        fputs("vmtailor: this libslirp publishes no ports of IPv6\n", stderr);
        exit(1);
    }
    for (char *rest = ports, *one; (one = strtok_r(NULL, ";", &rest)) != NULL;) {
        char protocol[4], address[INET6_ADDRSTRLEN];
        uint16_t from, to;
        if (sscanf(one, "%3[a-z],%45[0-9a-f:.],%hu,%hu", protocol, address, &from, &to) != 4 ||
            inet_pton(AF_INET6, address, &host.sin6_addr) != 1) {
            fprintf(stderr, "vmtailor: '%s' is not a port to publish\n", one);
            exit(1);
        }
        host.sin6_port = htons(from);
        guest.sin6_port = htons(to);
        int flags = NO_IPV4 | (strcmp(protocol, "udp") == 0 ? UDP : 0);
        if (open(network, (struct sockaddr *)&host, sizeof host, (struct sockaddr *)&guest, sizeof guest, flags) != 0) {
            fprintf(stderr, "vmtailor: [%s]:%hu/%s cannot be opened\n", address, from, protocol);
            exit(1);
        }
    }
}

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
    void *made = real(config, callbacks, opaque);
    char *six = getenv(SIX_VARIABLE), *ports = NULL;
    if (made != NULL && six != NULL && strtok_r(six, ";", &ports) != NULL)
        open_ports(made, six, ports);
    return made;
}
