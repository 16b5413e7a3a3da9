/* SPDX-License-Identifier: Apache-2.0 */
#include "policy.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#define DNS_PORT 53
/* How many senders are remembered. The oldest is forgotten, whose answer, if there is one yet, is lost: UDP's way. */
#define HEARD 1024

static const unsigned char mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

struct sender {
    int fd;
    struct place place;
};

/* QEMU's user-mode network runs under one lock, and so do we. */
static struct sender heard[HEARD];
static size_t heard_count;

enum reach reach_of(const char *word) {
    static const char *const words[] = {"closed", "answers", "world", "host"};
    for (size_t i = 0; word != NULL && i < sizeof words / sizeof *words; i++)
        if (strcmp(word, words[i]) == 0)
            return (enum reach)i;
    return REACH_CLOSED;
}

static void map(const struct in_addr *four, unsigned char address[16]) {
    memcpy(address, mapped, sizeof mapped);
    memcpy(address + sizeof mapped, four, sizeof *four);
}

bool place_of(const struct sockaddr *address, size_t length, struct place *found) {
    memset(found, 0, sizeof *found);
    if (address == NULL || length < sizeof address->sa_family)
        return false;
    /* sendto(2) takes an address without a family for an IPv4 address. */
    if ((address->sa_family == AF_INET || address->sa_family == AF_UNSPEC) && length >= sizeof(struct sockaddr_in)) {
        struct sockaddr_in four;
        memcpy(&four, address, sizeof four);
        map(&four.sin_addr, found->address);
        found->port = four.sin_port;
        return true;
    }
    /* The kernel takes IPv6 addresses without the scope, too. */
    const size_t least = offsetof(struct sockaddr_in6, sin6_scope_id);
    if (address->sa_family == AF_INET6 && length >= least) {
        struct sockaddr_in6 six;
        memcpy(&six, address, least);
        memcpy(found->address, &six.sin6_addr, sizeof found->address);
        found->port = six.sin6_port;
        return true;
    }
    return false;
}

bool is_loopback(const struct place *place) {
    static const unsigned char nothing[15];
    const unsigned char *address = place->address;
    if (memcmp(address, mapped, sizeof mapped) == 0)
        return address[12] == 127 || address[12] == 0;
    return memcmp(address, nothing, sizeof nothing) == 0 && address[15] <= 1; /* :: and ::1 */
}

bool is_resolver(const struct place *place, const char *file) {
    if (place->port != htons(DNS_PORT))
        return false;
    FILE *lines = fopen(file, "re");
    if (lines == NULL)
        return false;
    bool found = false;
    char line[512], word[64];
    while (!found && fgets(line, sizeof line, lines) != NULL) {
        unsigned char address[16];
        struct in_addr four;
        if (sscanf(line, " nameserver %63s", word) != 1)
            continue;
        if (inet_pton(AF_INET, word, &four) == 1)
            map(&four, address);
        else if (inet_pton(AF_INET6, word, address) != 1)
            continue;
        found = memcmp(address, place->address, sizeof address) == 0;
    }
    fclose(lines);
    return found;
}

static bool is_heard(int fd, const struct place *place) {
    for (size_t i = 0; i < heard_count && i < HEARD; i++)
        if (heard[i].fd == fd && heard[i].place.port == place->port &&
            memcmp(heard[i].place.address, place->address, sizeof place->address) == 0)
            return true;
    return false;
}

void heard_from(int fd, const struct place *place) {
    if (is_heard(fd, place))
        return;
    struct sender *slot = &heard[heard_count++ % HEARD];
    slot->fd = fd;
    slot->place = *place;
}

bool may_send(enum reach reach, int fd, const struct place *place, const char *resolvers) {
    switch (reach) {
    case REACH_HOST:
        return true;
    case REACH_WORLD:
        return !is_loopback(place) || is_heard(fd, place) || is_resolver(place, resolvers);
    case REACH_ANSWERS:
        return is_heard(fd, place);
    default:
        return false;
    }
}
