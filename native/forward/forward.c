// SPDX-License-Identifier: Apache-2.0
// Passes connections and datagrams on, from sockets of its starter's to ports of this host's loopback: what QEMU's own
// network listens on has an address of IPv4.
//
//   forward DESCRIPTOR PORT [DESCRIPTOR PORT]...
//
// Connections both ways, each with its own end, as far as the slower side takes it. A connection that is reset resets
// the other. A socket for datagrams is known as one (forward/datagrams.h).
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "forward/datagrams.h"

#define MOST_LISTENERS 256
#define MOST_CONNECTIONS 256
#define ROOM 32768
#define FAILED 71

struct listener {
    int fd;
    in_port_t port;
    bool datagrams;
};

// One way of a connection: what was read from one side and waits for the other.
struct way {
    size_t from, to;  // of the bytes held
    bool ended, told; // no more comes; the other side was told so
    char held[ROOM];
};

struct connection {
    int sides[2]; // of the caller and of the port
    bool connected;
    struct way ways[2]; // from each side to the other
};

static struct listener listeners[MOST_LISTENERS];
static size_t listening, open_connections;
static struct connection *connections[MOST_CONNECTIONS];

static _Noreturn void usage(const char *word) {
    fprintf(stderr, "forward: '%s' is not understood\n", word);
    exit(64);
}

static int number(const char *word, long most) {
    char *end;
    errno = 0;
    long value = strtol(word, &end, 10);
    if (errno || end == word || *end || value < 1 || value > most)
        usage(word);
    return (int)value;
}

// A reset is passed on: the end of a stream would look like all of it.
static void end_connection(size_t at, bool reset) {
    struct connection *connection = connections[at];
    struct linger none = {.l_onoff = 1};
    for (int side = 0; side < 2; side++) {
        if (reset)
            setsockopt(connection->sides[side], SOL_SOCKET, SO_LINGER, &none, sizeof(none));
        close(connection->sides[side]);
    }
    free(connection);
    connections[at] = connections[--open_connections];
}

static void take(const struct listener *listener) {
    struct sockaddr_in port = {
        .sin_family = AF_INET, .sin_port = listener->port, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int caller = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (caller < 0)
        return;
    int there = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct connection *made = there < 0 ? NULL : calloc(1, sizeof(*made));
    if (!made || (connect(there, (struct sockaddr *)&port, sizeof(port)) && errno != EINPROGRESS)) {
        free(made);
        close(caller);
        if (there >= 0)
            close(there);
        return;
    }
    made->sides[0] = caller;
    made->sides[1] = there;
    connections[open_connections++] = made;
}

// Read what there is room for; false when the connection is broken.
static bool fill(struct way *way, int side) {
    ssize_t length = recv(side, way->held, ROOM, 0);
    if (length < 0)
        return errno == EAGAIN || errno == EINTR;
    way->from = 0;
    way->to = (size_t)length;
    way->ended = length == 0;
    return true;
}

static bool empty_into(struct way *way, int side) {
    while (way->from < way->to) {
        ssize_t length = send(side, way->held + way->from, way->to - way->from, MSG_NOSIGNAL);
        if (length < 0)
            return errno == EAGAIN || errno == EINTR;
        way->from += (size_t)length;
    }
    if (way->ended && !way->told) {
        way->told = true;
        return shutdown(side, SHUT_WR) == 0;
    }
    return true;
}

static short wanted(const struct connection *connection, int side) {
    const struct way *out = &connection->ways[side], *in = &connection->ways[!side];
    if (!connection->connected)
        return side == 1 ? POLLOUT : 0;
    return (short)((!out->ended && out->from == out->to ? POLLIN : 0) | (in->from < in->to ? POLLOUT : 0));
}

static bool is_connected(int side) {
    int error = 0;
    socklen_t size = sizeof(error);
    return getsockopt(side, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && !error;
}

// Pass on what has come on one side; false when the connection is broken.
static bool pass(struct connection *connection, int side, short come) {
    struct way *out = &connection->ways[side], *in = &connection->ways[!side];
    if (!connection->connected)
        return connection->connected = side == 1 && is_connected(connection->sides[1]);
    if ((come & POLLERR) && !is_connected(connection->sides[side]))
        return false;
    if ((come & POLLOUT) && !empty_into(in, connection->sides[side]))
        return false;
    // A peer that has left entirely is seen by reading, once there is room.
    if ((come & (POLLIN | POLLHUP)) && !out->ended && out->from == out->to)
        return fill(out, connection->sides[side]) && empty_into(out, connection->sides[!side]);
    return true;
}

static bool is_over(const struct connection *connection) {
    return connection->ways[0].told && connection->ways[1].told;
}

static void turn(void) {
    static struct pollfd polls[MOST_LISTENERS + 2 * MOST_CONNECTIONS + MOST_CALLERS];
    size_t count = 0, before = open_connections;
    for (size_t i = 0; i < listening; i++) {
        bool takes = listeners[i].datagrams || before < MOST_CONNECTIONS;
        polls[count++] = (struct pollfd){.fd = takes ? listeners[i].fd : -1, .events = POLLIN};
    }
    for (size_t i = 0; i < before; i++)
        for (int side = 0; side < 2; side++) {
            short events = wanted(connections[i], side);
            // With nothing wanted, poll would tell of a peer that has left again and again.
            polls[count++] = (struct pollfd){.fd = events ? connections[i]->sides[side] : -1, .events = events};
        }
    size_t callers = datagrams_wait(polls + count);
    if (poll(polls, count + callers, -1) < 0)
        return;
    datagrams_answer(polls + count, callers);
    for (size_t i = before; i-- > 0;) { // backwards: the last one takes the place of one that ends
        bool good = true;
        for (int side = 0; good && side < 2; side++) {
            short come = polls[listening + 2 * i + (size_t)side].revents;
            good = !come || pass(connections[i], side, come);
        }
        if (!good || is_over(connections[i]))
            end_connection(i, !good);
    }
    for (size_t i = 0; i < listening; i++) {
        if (polls[i].revents && listeners[i].datagrams)
            datagrams_take(listeners[i].fd, listeners[i].port);
        else if (polls[i].revents && open_connections < MOST_CONNECTIONS)
            take(&listeners[i]);
    }
}

static void add_listener(int fd, in_port_t port) {
    int kind = 0;
    socklen_t size = sizeof(kind);
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &kind, &size) || fcntl(fd, F_SETFL, O_NONBLOCK) ||
        fcntl(fd, F_SETFD, FD_CLOEXEC) || (kind == SOCK_DGRAM && !datagrams_listen(fd))) {
        fprintf(stderr, "forward: descriptor %d: %s\n", fd, strerror(errno));
        exit(FAILED);
    }
    listeners[listening++] = (struct listener){fd, port, kind == SOCK_DGRAM};
}

// Connections take two descriptors each, and callers of datagrams one.
static void raise_limit(void) {
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
}

int main(int count, char **words) {
    if (count < 3 || count % 2 == 0 || (size_t)count > 2 * MOST_LISTENERS + 1)
        usage(count > 1 ? words[count - 1] : "");
    for (int i = 1; i < count; i += 2)
        add_listener(number(words[i], 1 << 20), htons((in_port_t)number(words[i + 1], 65535)));
    raise_limit();
    signal(SIGPIPE, SIG_IGN);
    for (;;)
        turn();
}
