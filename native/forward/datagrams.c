// SPDX-License-Identifier: Apache-2.0
#include "forward/datagrams.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

// The longest that IPv6 takes without jumbograms.
#define LONGEST 65536
// How many are taken from one socket before others have their turn.
#define AT_ONCE 64

struct caller {
    int listens, port; // the socket it spoke to, and its own towards the port
    struct sockaddr_in6 from;
    struct in6_pktinfo to; // the address that it spoke to
    unsigned long last;    // its place in the order of all datagrams
};

// The C library's cmsg macros want it aligned.
union control {
    struct cmsghdr head;
    char room[CMSG_SPACE(sizeof(struct in6_pktinfo))];
};

static struct caller callers[MOST_CALLERS];
static size_t count;
static unsigned long now;
static char held[LONGEST];

bool datagrams_listen(int fd) {
    return setsockopt(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &(int){1}, sizeof(int)) == 0;
}

static bool is_caller(const struct caller *one, const struct caller *other) {
    return one->listens == other->listens && one->from.sin6_port == other->from.sin6_port &&
           one->from.sin6_scope_id == other->from.sin6_scope_id &&
           !memcmp(&one->from.sin6_addr, &other->from.sin6_addr, sizeof(one->from.sin6_addr)) &&
           !memcmp(&one->to.ipi6_addr, &other->to.ipi6_addr, sizeof(one->to.ipi6_addr));
}

static bool lead_to(struct caller *caller, in_port_t port) {
    struct sockaddr_in there = {.sin_family = AF_INET, .sin_port = port, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    caller->port = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (caller->port < 0)
        return false;
    if (connect(caller->port, (struct sockaddr *)&there, sizeof(there)) == 0)
        return true;
    close(caller->port);
    return false;
}

// Find a caller, or make it one. The sockets of those that are there stay where they are in the table, so that what
// was waited for is theirs.
static struct caller *known(struct caller *found, in_port_t port) {
    size_t oldest = 0;
    for (size_t i = 0; i < count; i++) {
        if (is_caller(&callers[i], found))
            return &callers[i];
        if (callers[i].last < callers[oldest].last)
            oldest = i;
    }
    if (!lead_to(found, port))
        return NULL;
    if (count < MOST_CALLERS)
        oldest = count++;
    else
        close(callers[oldest].port);
    callers[oldest] = *found;
    return &callers[oldest];
}

static struct in6_pktinfo told_by(struct msghdr *message) {
    struct in6_pktinfo found = {0};
    for (struct cmsghdr *head = CMSG_FIRSTHDR(message); head; head = CMSG_NXTHDR(message, head))
        if (head->cmsg_level == IPPROTO_IPV6 && head->cmsg_type == IPV6_PKTINFO)
            memcpy(&found, CMSG_DATA(head), sizeof(found));
    // To other addresses the answer's way is the kernel's to find: what came from this host says another device.
    if (!IN6_IS_ADDR_LINKLOCAL(&found.ipi6_addr))
        found.ipi6_ifindex = 0;
    return found;
}

void datagrams_take(int fd, in_port_t port) {
    for (int i = 0; i < AT_ONCE; i++) {
        struct caller found = {.listens = fd};
        struct iovec data = {held, sizeof(held)};
        union control control = {0};
        struct msghdr message = {
            .msg_name = &found.from,
            .msg_namelen = sizeof(found.from),
            .msg_iov = &data,
            .msg_iovlen = 1,
            .msg_control = &control,
            .msg_controllen = sizeof(control),
        };
        ssize_t length = recvmsg(fd, &message, 0);
        if (length < 0)
            return;
        found.to = told_by(&message);
        struct caller *caller = known(&found, port);
        if (!caller)
            continue; // as a network that is busy does
        caller->last = ++now;
        // An error that waited is of a datagram before, for which nobody was there.
        if (send(caller->port, held, (size_t)length, 0) < 0 && errno == ECONNREFUSED)
            send(caller->port, held, (size_t)length, 0);
    }
}

static void answer(const struct caller *caller, size_t length) {
    struct iovec data = {held, length};
    union control control = {0};
    struct msghdr message = {
        .msg_name = (void *)&caller->from,
        .msg_namelen = sizeof(caller->from),
        .msg_iov = &data,
        .msg_iovlen = 1,
        .msg_control = &control,
        .msg_controllen = sizeof(control),
    };
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = IPPROTO_IPV6;
    head->cmsg_type = IPV6_PKTINFO;
    head->cmsg_len = CMSG_LEN(sizeof(caller->to));
    memcpy(CMSG_DATA(head), &caller->to, sizeof(caller->to));
    sendmsg(caller->listens, &message, MSG_NOSIGNAL);
}

size_t datagrams_wait(struct pollfd *polls) {
    for (size_t i = 0; i < count; i++)
        polls[i] = (struct pollfd){.fd = callers[i].port, .events = POLLIN};
    return count;
}

void datagrams_answer(const struct pollfd *polls, size_t waited) {
    for (size_t i = 0; i < waited; i++) {
        if (!polls[i].revents)
            continue;
        for (int each = 0; each < AT_ONCE; each++) {
            ssize_t length = recv(callers[i].port, held, sizeof(held), 0);
            if (length < 0)
                break; // nothing more, or nobody listens: there is no word for that over UDP
            callers[i].last = ++now;
            answer(&callers[i], (size_t)length);
        }
    }
}
