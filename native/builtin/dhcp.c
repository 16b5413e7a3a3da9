/* SPDX-License-Identifier: Apache-2.0 */
#include "builtin/dhcp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "builtin/dhcp_message.h"
#include "common/clock.h"
#include "common/interface.h"

#define SERVER_PORT 67
#define CLIENT_PORT 68
/* Milliseconds until a question is asked again, doubled each time. */
#define FIRST_MS 500
#define LAST_MS 16000
/* Questions after an offer, and for a renewal, before it is begun anew. */
#define REQUESTS 4
/* A server that grants less is asked as seldom as this, and one that grants more at least as often. */
#define LEAST_S 60u
#define MOST_S (7u * 24 * 3600)
#define FOREVER 0xffffffffu

struct client {
    const char *interface, *hostname;
    uint8_t mac[DHCP_MAC];
    uint32_t id;
    struct dhcp_answer lease;
};

static int complain(const char *what) {
    fprintf(stderr, "dhcp: %s: %s\n", what, strerror(errno));
    return 1;
}

/* -1 with errno. While there is no address, everything goes to everybody, and from nobody. */
static int open_socket(const struct client *client) {
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), yes = 1;
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons(CLIENT_PORT)};
    if (fd < 0)
        return -1;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
        setsockopt(fd, SOL_SOCKET, SO_BROADCAST, &yes, sizeof yes) == 0 &&
        setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, client->interface, (socklen_t)strlen(client->interface) + 1) == 0 &&
        bind(fd, (struct sockaddr *)&own, sizeof own) == 0)
        return fd;
    close(fd);
    return -1;
}

static void send_question(int fd, const struct dhcp_question *question, struct in_addr to) {
    uint8_t message[DHCP_BYTES];
    struct sockaddr_in there = {.sin_family = AF_INET, .sin_port = htons(SERVER_PORT), .sin_addr = to};
    size_t length = dhcp_write(question, message);
    /* One that cannot be sent is asked again, as one without an answer. */
    sendto(fd, message, length, 0, (struct sockaddr *)&there, sizeof there);
}

/* Wait for an answer of a kind, or a refusal. */
static bool await(int fd, const struct client *client, int wait_ms, enum dhcp_kind kind, struct dhcp_answer *answer) {
    uint64_t deadline = now_ns() + (uint64_t)wait_ms * 1000000u;
    for (uint64_t now = now_ns(); now < deadline; now = now_ns()) {
        uint8_t message[2048];
        struct pollfd one = {.fd = fd, .events = POLLIN};
        if (poll(&one, 1, (int)((deadline - now) / 1000000u) + 1) <= 0)
            continue;
        ssize_t length = recv(fd, message, sizeof message, MSG_DONTWAIT);
        if (length > 0 && dhcp_read(message, (size_t)length, client->id, client->mac, answer) &&
            (answer->kind == kind || answer->kind == DHCP_NAK))
            return true;
    }
    return false;
}

/* Ask until there is an answer; `times` 0 for ever. */
static bool ask(int fd, struct client *client, struct dhcp_question *question, struct in_addr to, enum dhcp_kind kind,
                int times, struct dhcp_answer *answer) {
    int wait_ms = FIRST_MS;
    for (int i = 0; times == 0 || i < times; i++) {
        send_question(fd, question, to);
        if (await(fd, client, wait_ms, kind, answer))
            return true;
        wait_ms = wait_ms < LAST_MS ? wait_ms * 2 : LAST_MS;
    }
    return false;
}

static void new_id(struct client *client) {
    if (getrandom(&client->id, sizeof client->id, GRND_NONBLOCK) != sizeof client->id)
        client->id = (uint32_t)now_ns() ^ ((uint32_t)client->mac[4] << 8 | client->mac[5]) * 2654435761u;
}

static struct dhcp_question question_of(const struct client *client, enum dhcp_kind kind) {
    struct dhcp_question question = {.kind = kind, .id = client->id, .hostname = client->hostname};
    memcpy(question.mac, client->mac, DHCP_MAC);
    return question;
}

/* A lease of no time at all is one that is gone (below). */
static void granted(struct client *client, const struct dhcp_answer *answer) {
    client->lease = *answer;
    if (client->lease.lease_s == 0)
        client->lease.lease_s = LEAST_S;
}

/* From nothing to an address that the server has confirmed. */
static void discover(int fd, struct client *client) {
    struct in_addr everybody = {INADDR_BROADCAST};
    struct dhcp_answer offer, answer;
    for (;;) {
        new_id(client);
        struct dhcp_question question = question_of(client, DHCP_DISCOVER);
        if (!ask(fd, client, &question, everybody, DHCP_OFFER, 0, &offer) || offer.kind == DHCP_NAK)
            continue;
        question = question_of(client, DHCP_REQUEST);
        question.wanted = offer.address;
        question.server = offer.server;
        if (ask(fd, client, &question, everybody, DHCP_ACK, REQUESTS, &answer) && answer.kind == DHCP_ACK) {
            granted(client, &answer);
            return;
        }
    }
}

/* False where the address is gone. */
static bool renew(struct client *client, int fd, struct in_addr to) {
    struct dhcp_answer answer;
    new_id(client);
    struct dhcp_question question = question_of(client, DHCP_REQUEST);
    question.own = client->lease.address;
    if (!ask(fd, client, &question, to, DHCP_ACK, REQUESTS, &answer))
        return false;
    if (answer.kind == DHCP_NAK || answer.address.s_addr != client->lease.address.s_addr) {
        client->lease.lease_s = 0;
        return false;
    }
    granted(client, &answer);
    return true;
}

static bool configure(const struct client *client) {
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const struct dhcp_answer *lease = &client->lease;
    const char *failed =
        fd < 0 ? "socket" : interface_configure(fd, client->interface, lease->address, lease->prefix, lease->gateway);
    if (failed != NULL)
        complain(failed);
    close(fd);
    return failed == NULL;
}

static void print_lease(const struct dhcp_answer *lease) {
    char text[96], own[16], gateway[16], dns[16];
    inet_ntop(AF_INET, &lease->address, own, sizeof own);
    inet_ntop(AF_INET, &lease->gateway, gateway, sizeof gateway);
    inet_ntop(AF_INET, &lease->dns, dns, sizeof dns);
    int length = snprintf(text, sizeof text, "%s/%d,%s,%s\n", own, lease->prefix,
                          lease->gateway.s_addr != 0 ? gateway : "", lease->dns.s_addr != 0 ? dns : "");
    if (write(1, text, (size_t)length) != length)
        complain("write");
}

static void sleep_s(uint32_t seconds) {
    struct timespec left = {.tv_sec = (time_t)seconds};
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}

static uint32_t between(uint32_t least, uint32_t value, uint32_t most) {
    return value < least ? least : value > most ? most : value;
}

/* Keep the address until the server takes it back, or is silent until it has run out. */
static void keep(struct client *client) {
    while (client->lease.lease_s != FOREVER) {
        uint32_t lease = between(LEAST_S, client->lease.lease_s, MOST_S);
        uint32_t half = between(LEAST_S / 2, client->lease.renew_s, lease / 2);
        uint64_t ends = now_ns() + (uint64_t)lease * 1000000000u;
        bool renewed = false;
        sleep_s(client->lease.renew_s != 0 ? half : lease / 2);
        while (!renewed && client->lease.lease_s != 0 && now_ns() < ends) {
            int fd = open_socket(client);
            /* At first the server alone is asked, later whoever knows. */
            bool late = now_ns() + (uint64_t)lease * 1000000000u / 8 > ends;
            struct in_addr to = {late ? INADDR_BROADCAST : client->lease.server.s_addr};
            renewed = fd >= 0 && renew(client, fd, to);
            if (fd >= 0)
                close(fd);
            if (!renewed && client->lease.lease_s != 0)
                sleep_s(between(1, lease / 16, 60));
        }
        if (!renewed)
            return;
    }
    for (;;)
        sleep_s(MOST_S);
}

static void forget_address(const struct client *client) {
    struct ifreq none = interface_request(client->interface);
    struct sockaddr_in nothing = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    memcpy(&none.ifr_addr, &nothing, sizeof nothing);
    ioctl(fd, SIOCSIFADDR, &none);
    close(fd);
}

int dhcp(const char *interface, const char *hostname) {
    struct client client = {.interface = interface, .hostname = hostname};
    struct ifreq ask_mac = interface_request(interface);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || ioctl(fd, SIOCGIFHWADDR, &ask_mac) != 0 || !interface_up(fd, interface))
        return complain(interface);
    memcpy(client.mac, ask_mac.ifr_hwaddr.sa_data, DHCP_MAC);
    close(fd);
    for (bool first = true;; first = false) {
        fd = open_socket(&client);
        if (fd < 0)
            return complain("port 68");
        discover(fd, &client);
        close(fd);
        if (!configure(&client))
            return 1;
        if (first) {
            print_lease(&client.lease);
            close(1);
        }
        keep(&client);
        forget_address(&client);
    }
}
