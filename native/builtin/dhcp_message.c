/* SPDX-License-Identifier: Apache-2.0 */
#include "builtin/dhcp_message.h"

#include <arpa/inet.h>
#include <string.h>

/* Places of the fixed part. */
enum { OP = 0, HTYPE = 1, HLEN = 2, ID = 4, FLAGS = 10, OWN = 12, YOURS = 16, MAC = 28, COOKIE = 236, OPTIONS = 240 };

enum {
    PAD = 0,
    NETMASK = 1,
    ROUTER = 3,
    NAME_SERVER = 6,
    HOST_NAME = 12,
    WANTED = 50,
    LEASE = 51,
    KIND = 53,
    SERVER = 54,
    ASK_FOR = 55,
    RENEWAL = 58,
    CLIENT = 61,
    END = 255
};

static const uint8_t COOKIE_BYTES[4] = {99, 130, 83, 99};
/* Older relays drop shorter ones. */
#define LEAST_BYTES 300
#define NAME_BYTES 63

static uint32_t number(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static size_t add(uint8_t *message, size_t at, uint8_t option, const void *value, size_t length) {
    message[at] = option;
    message[at + 1] = (uint8_t)length;
    memcpy(message + at + 2, value, length);
    return at + 2 + length;
}

size_t dhcp_write(const struct dhcp_question *question, uint8_t message[DHCP_BYTES]) {
    static const uint8_t ask_for[] = {NETMASK, ROUTER, NAME_SERVER, LEASE, RENEWAL};
    uint8_t kind = (uint8_t)question->kind, client[1 + DHCP_MAC] = {1};
    uint32_t id = htonl(question->id);
    memset(message, 0, DHCP_BYTES);
    message[OP] = 1;
    message[HTYPE] = 1;
    message[HLEN] = DHCP_MAC;
    memcpy(message + ID, &id, sizeof id);
    if (question->own.s_addr == 0)
        message[FLAGS] = 0x80; /* answer to everybody: we have no address to be answered at */
    memcpy(message + OWN, &question->own, 4);
    memcpy(message + MAC, question->mac, DHCP_MAC);
    memcpy(message + COOKIE, COOKIE_BYTES, sizeof COOKIE_BYTES);
    memcpy(client + 1, question->mac, DHCP_MAC);
    size_t at = add(message, OPTIONS, KIND, &kind, 1);
    at = add(message, at, CLIENT, client, sizeof client);
    at = add(message, at, ASK_FOR, ask_for, sizeof ask_for);
    if (question->wanted.s_addr != 0)
        at = add(message, at, WANTED, &question->wanted, 4);
    if (question->server.s_addr != 0)
        at = add(message, at, SERVER, &question->server, 4);
    size_t named = question->hostname != NULL ? strnlen(question->hostname, NAME_BYTES) : 0;
    if (named > 0)
        at = add(message, at, HOST_NAME, question->hostname, named);
    message[at++] = END;
    return at < LEAST_BYTES ? LEAST_BYTES : at;
}

/* One that a host can have: not this network's, loopback, of a group, or for everybody. */
static bool of_a_host(struct in_addr address) {
    uint32_t first = ntohl(address.s_addr) >> 24;
    return first != 0 && first != 127 && first < 224;
}

/* -1 for a mask with holes. */
static int prefix_of(uint32_t mask) {
    int prefix = 0;
    for (; (mask & 0x80000000u) != 0; mask <<= 1)
        prefix++;
    return mask == 0 ? prefix : -1;
}

/* The first one of a kind counts. */
static void take(struct dhcp_answer *answer, uint8_t option, const uint8_t *value, size_t length) {
    struct in_addr *address = option == ROUTER        ? &answer->gateway
                              : option == NAME_SERVER ? &answer->dns
                              : option == SERVER      ? &answer->server
                                                      : NULL;
    if (option == KIND && length == 1 && answer->kind == 0)
        answer->kind = (enum dhcp_kind)value[0];
    if (length < 4)
        return;
    if (address != NULL && address->s_addr == 0)
        memcpy(address, value, 4);
    if (option == NETMASK && answer->prefix == 0)
        answer->prefix = prefix_of(number(value));
    if (option == LEASE && answer->lease_s == 0)
        answer->lease_s = number(value);
    if (option == RENEWAL && answer->renew_s == 0)
        answer->renew_s = number(value);
}

bool dhcp_read(const uint8_t *message, size_t length, uint32_t id, const uint8_t mac[DHCP_MAC],
               struct dhcp_answer *answer) {
    memset(answer, 0, sizeof *answer);
    if (length < OPTIONS || message[OP] != 2 || message[HTYPE] != 1 || message[HLEN] != DHCP_MAC ||
        number(message + ID) != id || memcmp(message + MAC, mac, DHCP_MAC) != 0 ||
        memcmp(message + COOKIE, COOKIE_BYTES, sizeof COOKIE_BYTES) != 0)
        return false;
    memcpy(&answer->address, message + YOURS, 4);
    for (size_t at = OPTIONS; at < length && message[at] != END;) {
        if (message[at] == PAD) {
            at++;
            continue;
        }
        if (at + 2 > length || at + 2 + message[at + 1] > length)
            return false;
        take(answer, message[at], message + at + 2, message[at + 1]);
        at += 2u + message[at + 1];
    }
    if (answer->kind == DHCP_NAK)
        return true;
    if (answer->kind != DHCP_OFFER && answer->kind != DHCP_ACK)
        return false;
    if (answer->prefix == 0)
        answer->prefix = 24; /* RFC 2131 has it in every answer; a server without one is of a home */
    if (!of_a_host(answer->gateway))
        answer->gateway.s_addr = 0;
    if (!of_a_host(answer->dns))
        answer->dns.s_addr = 0;
    return answer->prefix > 0 && of_a_host(answer->address) && of_a_host(answer->server);
}
