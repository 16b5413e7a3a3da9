/* SPDX-License-Identifier: Apache-2.0 */
/* Datagrams: each caller has a socket of its own towards the port, from which answers come back. */
#ifndef VT_FORWARD_DATAGRAMS_H
#define VT_FORWARD_DATAGRAMS_H

#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>

/* As many callers as QEMU's guard remembers (native/net-guard). The one that was silent longest makes room. */
#define MOST_CALLERS 1024

/* Make a bound socket say at which address a datagram came: the answer leaves from there. */
bool datagrams_listen(int fd);

/* Pass on what has come at a bound socket to a port (in the network's order) of this host's loopback. */
void datagrams_take(int fd, in_port_t port);

/* Put callers' sockets among those that are waited for; returns how many. */
size_t datagrams_wait(struct pollfd *polls);

/* Pass on answers, by what the same entries say now. */
void datagrams_answer(const struct pollfd *polls, size_t count);

#endif
