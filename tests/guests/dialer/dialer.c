// SPDX-License-Identifier: Apache-2.0
// `serve`: answers each client of TCP port 80, and each datagram to UDP port 7, with "hello". `PROTOCOL ADDRESS
// PORT...`: asks there, and prints what came: one line for each three words.
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

static int open_socket(const char *protocol) {
    int fd = socket(AF_INET, strcmp(protocol, "udp") ? SOCK_STREAM : SOCK_DGRAM, 0);
    if (fd < 0)
        die("socket");
    struct timeval patience = {.tv_sec = PATIENCE_S};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    return fd;
}

static int ask(const char *protocol, const char *address, const char *port) {
    struct sockaddr_in there = {.sin_family = AF_INET, .sin_port = htons((in_port_t)atoi(port))};
    if (inet_aton(address, &there.sin_addr) == 0)
        return 2;
    int fd = open_socket(protocol);
    char answer[64] = "";
    ssize_t got = connect(fd, (struct sockaddr *)&there, sizeof there);
    if (got == 0)
        got = send(fd, "hello?\n", 7, MSG_NOSIGNAL);
    if (got >= 0)
        got = recv(fd, answer, sizeof answer - 1, 0);
    if (got > 0)
        printf("%s %s %s: %.*s\n", protocol, address, port, (int)strcspn(answer, "\n"), answer);
    else
        printf("%s %s %s: nothing (%s)\n", protocol, address, port, got < 0 ? strerror(errno) : "closed");
    close(fd);
    return 0;
}

static int bound(const char *protocol, in_port_t port) {
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = open_socket(protocol), on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&here, sizeof here) != 0)
        die("bind");
    return fd;
}

_Noreturn static void serve(void) {
    struct pollfd doors[] = {{.fd = bound("tcp", 80), .events = POLLIN}, {.fd = bound("udp", 7), .events = POLLIN}};
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
            struct sockaddr_in client;
            socklen_t size = sizeof client;
            if (recvfrom(doors[1].fd, data, sizeof data, 0, (struct sockaddr *)&client, &size) >= 0)
                sendto(doors[1].fd, "hello\n", 6, 0, (struct sockaddr *)&client, size);
        }
    }
}

static void leave(int number) {
    _exit(number);
}

int main(int argc, char *argv[]) {
    signal(SIGTERM, leave);
    if (argc < 4)
        serve();
    for (int i = 1; i + 2 < argc; i += 3)
        if (ask(argv[i], argv[i + 1], argv[i + 2]) != 0)
            return 2;
    return 0;
}
