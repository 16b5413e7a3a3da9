/* SPDX-License-Identifier: Apache-2.0 */
/* The C library's calls that send and listen, as QEMU's user-mode network (libslirp) makes them, with the policy before
 * them. The guest chooses the addresses: 10.0.2.2 becomes 127.0.0.1, 10.0.2.3 the host's name server on any port, and
 * 127.0.0.1 itself stays what it is. So what counts is where a packet is about to go. */
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "calls.h"
#include "policy.h"

#ifndef RESOLVERS
#define RESOLVERS "/etc/resolv.conf"
#endif

/* Connections that may wait at a published port; libslirp asks for one. The kernel has a limit of its own
 * (net.core.somaxconn). */
#define BACKLOG 4096

enum reach reach(void) {
    static bool known;
    static enum reach found;
    if (!known) {
        found = reach_of(getenv(REACH_VARIABLE));
        known = true;
    }
    return found;
}

/* Other families than IP are QEMU's own affair (its monitor's socket). A refusal is what the guest would see where
 * nobody listens: libslirp makes a reset of it, so that nothing waits. */
static bool refused(int fd, const struct sockaddr *address, socklen_t length) {
    struct place place;
    if (!place_of(address, length, &place) || may_send(reach(), fd, &place, RESOLVERS))
        return false;
    errno = ECONNREFUSED;
    return true;
}

static void note(int fd, const struct sockaddr *address, socklen_t length) {
    struct place place;
    if (place_of(address, length, &place))
        heard_from(fd, &place);
}

EXPORTED int connect(int fd, const struct sockaddr *address, socklen_t length) {
    return refused(NO_SOCKET, address, length) ? -1 : (int)syscall(SYS_connect, fd, address, length);
}

EXPORTED ssize_t sendto(int fd, const void *data, size_t size, int flags, const struct sockaddr *address,
                        socklen_t length) {
    return refused(fd, address, length) ? -1 : syscall(SYS_sendto, fd, data, size, flags, address, length);
}

EXPORTED ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
    return refused(fd, message->msg_name, message->msg_namelen) ? -1 : syscall(SYS_sendmsg, fd, message, flags);
}

/* libslirp does not use it. A version that did would go past us. */
EXPORTED int sendmmsg(int fd, const void *messages, unsigned int count, int flags) {
    (void)fd, (void)messages, (void)count, (void)flags;
    errno = EPERM;
    return -1;
}

EXPORTED ssize_t recvfrom(int fd, void *data, size_t size, int flags, struct sockaddr *address, socklen_t *length) {
    const ssize_t got = syscall(SYS_recvfrom, fd, data, size, flags, address, length);
    if (got >= 0 && address != NULL && length != NULL)
        note(fd, address, *length);
    return got;
}

/* The same in programs that were compiled with _FORTIFY_SOURCE. */
EXPORTED ssize_t __recvfrom_chk(int fd, void *data, size_t size, size_t room, int flags, struct sockaddr *address,
                                socklen_t *length) {
    if (size > room)
        abort();
    return recvfrom(fd, data, size, flags, address, length);
}

EXPORTED ssize_t recvmsg(int fd, struct msghdr *message, int flags) {
    const ssize_t got = syscall(SYS_recvmsg, fd, message, flags);
    /* The error queue tells whom we sent to. */
    if (got >= 0 && !(flags & MSG_ERRQUEUE))
        note(fd, message->msg_name, message->msg_namelen);
    return got;
}

EXPORTED int listen(int fd, int backlog) {
    return (int)syscall(SYS_listen, fd, backlog < BACKLOG ? BACKLOG : backlog);
}
