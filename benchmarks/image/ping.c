// SPDX-License-Identifier: Apache-2.0
// Request and response over TCP: one byte there, one byte back, the next when it is back. Static, and of one source.
//
//   ping serve ADDRESS PORT            answers one client until it goes, then the next
//   ping ask ADDRESS PORT SECONDS      asks for so long, and prints one JSON object with what a round trip took
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

// Round trips that are kept; who is so fast that there are more has asked long enough. The first are of a connection
// that is new to both ends.
enum { MOST = 4000000, FIRST = 100, TRIES = 50 };

static double now_s(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

static int fail(const char *what) {
    fprintf(stderr, "ping: %s: %s\n", what, strerror(errno));
    return 1;
}

static void at_once(int connection) {
    int yes = 1;
    setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
}

static int serve(struct sockaddr_in here) {
    char byte;
    int yes = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0)
        return fail("socket");
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (bind(listener, (struct sockaddr *)&here, sizeof(here)) < 0 || listen(listener, 8) < 0)
        return fail("listen");
    for (;;) {
        int client = accept(listener, NULL, NULL);
        if (client < 0)
            continue;
        at_once(client);
        while (read(client, &byte, 1) == 1 && write(client, &byte, 1) == 1)
            ;
        close(client);
    }
}

static int ascending(const void *one, const void *other) {
    float a = *(const float *)one, b = *(const float *)other;
    return (a > b) - (a < b);
}

static int ask(struct sockaddr_in there, double seconds) {
    float *took = malloc(sizeof(*took) * MOST);
    size_t rounds = 0;
    char byte = 'x';
    int connection = -1;
    if (!took)
        return fail("malloc");
    for (int n = 0; n < TRIES; n++) { // an address may take a moment until it can be used
        connection = socket(AF_INET, SOCK_STREAM, 0);
        if (connection < 0)
            return fail("socket");
        if (connect(connection, (struct sockaddr *)&there, sizeof(there)) == 0)
            break;
        close(connection);
        connection = -1;
        usleep(20000);
    }
    if (connection < 0)
        return fail("connect");
    at_once(connection);
    double began = 0, before;
    for (int n = 0; n < FIRST; n++)
        if (write(connection, &byte, 1) != 1 || read(connection, &byte, 1) != 1)
            return fail("round trip");
    began = before = now_s();
    while (rounds < MOST && before - began < seconds) {
        double after;
        if (write(connection, &byte, 1) != 1 || read(connection, &byte, 1) != 1)
            return fail("round trip");
        after = now_s();
        took[rounds++] = (float)(after - before);
        before = after;
    }
    if (rounds == 0)
        return fail("no round trip");
    qsort(took, rounds, sizeof(*took), ascending);
    printf("{\"round_trips\": %zu, \"seconds\": %.9f, \"median_s\": %.9f, \"p99_s\": %.9f}\n", rounds, before - began,
           (double)took[rounds / 2], (double)took[rounds * 99 / 100]);
    return 0;
}

int main(int count, char **words) {
    struct sockaddr_in at = {.sin_family = AF_INET};
    if (count >= 4 && inet_pton(AF_INET, words[2], &at.sin_addr) == 1) {
        at.sin_port = htons((uint16_t)atoi(words[3]));
        if (count == 4 && !strcmp(words[1], "serve"))
            return serve(at);
        if (count == 5 && !strcmp(words[1], "ask"))
            return ask(at, atof(words[4]));
    }
    fprintf(stderr, "usage: ping serve ADDRESS PORT | ask ADDRESS PORT SECONDS\n");
    return 2;
}
