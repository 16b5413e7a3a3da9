/* SPDX-License-Identifier: Apache-2.0 */
/* What a guest may reach. */
#pragma once
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* What this process may reach for its guest. CLOSED: what cannot be told is not opened. */
enum reach {
    REACH_CLOSED,  /* nobody, not even an answer */
    REACH_ANSWERS, /* those who sent something first */
    REACH_WORLD,   /* these, and everybody but the servers on the host's loopback addresses */
    REACH_HOST,    /* these, too */
};

/* What a word of the environment asks for; NULL is CLOSED. */
enum reach reach_of(const char *word);

/* An IP address and port. IPv4 addresses are mapped (::ffff:a.b.c.d). */
struct place {
    unsigned char address[16];
    uint16_t port; /* in the network's order */
};

/* Whether it is an IP address, which is then in `found`. */
bool place_of(const struct sockaddr *address, size_t length, struct place *found);

/* Whether what is sent there stays on this host: 127.0.0.0/8, ::1, and the addresses that mean "this host". */
bool is_loopback(const struct place *place);

/* Whether it is port 53 of a name server that the file (resolv.conf(5)) lists. */
bool is_resolver(const struct place *place, const char *file);

/* Notes that `place` has sent something to this socket. */
void heard_from(int fd, const struct place *place);

/* For what is no answer. */
#define NO_SOCKET (-1)

/* Whether something may be sent there from this socket. */
bool may_send(enum reach reach, int fd, const struct place *place, const char *resolvers);
