// SPDX-License-Identifier: Apache-2.0
// `serve`: answers each client of TCP port 80, and each datagram to UDP port 7, with "hello"; `serve six` clients of
// IPv6, and no others. `PROTOCOL ADDRESS PORT...`: asks there, and prints what came: one line for each three words.
#define _DEFAULT_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define PATIENCE_S 3

_Noreturn static void die(const char *what) {
    perror(what);
    exit(1);
}

union address {
    struct sockaddr any;
    struct sockaddr_in four;
    struct sockaddr_in6 six;
};

static union address address_of(const char *text, in_port_t port) {
    union address found = {.four = {.sin_family = AF_INET, .sin_port = htons(port)}};
    if (inet_pton(AF_INET, text, &found.four.sin_addr) == 1)
        return found;
    found = (union address){.six = {.sin6_family = AF_INET6, .sin6_port = htons(port)}};
    if (inet_pton(AF_INET6, text, &found.six.sin6_addr) != 1)
        exit(2);
    return found;
}

static int open_socket(const char *protocol, int family) {
    int fd = socket(family, strcmp(protocol, "udp") ? SOCK_STREAM : SOCK_DGRAM, 0);
    if (fd < 0)
        die("socket");
    struct timeval patience = {.tv_sec = PATIENCE_S};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    return fd;
}

static void ask(const char *protocol, const char *address, const char *port) {
    union address there = address_of(address, (in_port_t)atoi(port));
    int fd = open_socket(protocol, there.any.sa_family);
    char answer[64] = "";
    ssize_t got = connect(fd, &there.any, sizeof there);
    if (got == 0)
        got = send(fd, "hello?\n", 7, MSG_NOSIGNAL);
    if (got >= 0)
        got = recv(fd, answer, sizeof answer - 1, 0);
    if (got > 0)
        printf("%s %s %s: %.*s\n", protocol, address, port, (int)strcspn(answer, "\n"), answer);
    else
        printf("%s %s %s: nothing (%s)\n", protocol, address, port, got < 0 ? strerror(errno) : "closed");
    close(fd);
}

static int bound(const char *protocol, const char *address, in_port_t port) {
    union address here = address_of(address, port);
    int fd = open_socket(protocol, here.any.sa_family), on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (bind(fd, &here.any, sizeof here) != 0)
        die("bind");
    return fd;
}

_Noreturn static void serve(const char *here) {
    struct pollfd doors[] = {{.fd = bound("tcp", here, 80), .events = POLLIN},
                             {.fd = bound("udp", here, 7), .events = POLLIN}};
    if (listen(doors[0].fd, 4096) != 0)
        die("listen");
    puts("serving");
    fflush(stdout);
    for (;;) {
        char data[512];
        if (poll(doors, 2, -1) < 0)
            die("poll");
        if (doors[0].revents) {
            int client = accept(doors[0].fd, NULL, NULL);
            if (client >= 0 && recv(client, data, sizeof data, 0) > 0)
                send(client, "hello\n", 6, MSG_NOSIGNAL);
            close(client);
        }
        if (doors[1].revents) {
            union address client;
            socklen_t size = sizeof client;
            if (recvfrom(doors[1].fd, data, sizeof data, 0, &client.any, &size) >= 0)
                sendto(doors[1].fd, "hello\n", 6, 0, &client.any, size);
        }
    }
}

static void leave(int number) {
    _exit(number);
}

int main(int argc, char *argv[]) {
    signal(SIGTERM, leave);
    if (argc < 4)
        serve(argc == 3 && strcmp(argv[2], "six") == 0 ? "::" : "0.0.0.0");
    for (int i = 1; i + 2 < argc; i += 3)
        ask(argv[i], argv[i + 1], argv[i + 2]);
    return 0;
}
