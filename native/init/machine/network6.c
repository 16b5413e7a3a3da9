/* SPDX-License-Identifier: Apache-2.0 */
#include "init/machine/network6.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/route.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/interface.h"
#include "init/base/power_off.h"
#include "init/base/serial_line.h"
#include "init/settings/settings.h"

#define ACCEPT_DAD "/proc/sys/net/ipv6/conf/eth0/accept_dad"

/* As the kernel takes them. C libraries have names of their own, or none. */
struct address_request {
    struct in6_addr address;
    uint32_t prefix;
    int device;
};
struct route_request {
    struct in6_addr to, from, gateway;
    uint32_t type;
    uint16_t to_length, from_length;
    uint32_t metric;
    unsigned long info;
    uint32_t flags;
    int device;
};

void network6_sure(void) {
    int fd = open(ACCEPT_DAD, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return; /* without it the address is there a second later */
    if (write(fd, "0", 1) != 1)
        line_note("", "write(%s): %s", ACCEPT_DAD, strerror(errno));
    close(fd);
}

static void add_name(const char *address) {
    char line[128 + 64];
    int fd = open("/etc/hosts", O_WRONLY | O_APPEND | O_CLOEXEC);
    int length = snprintf(line, sizeof line, "%s\t%.64s\n", address, settings.hostname);
    if (fd < 0 || write(fd, line, (size_t)length) != length)
        line_note("", "write(/etc/hosts): %s", strerror(errno));
    if (fd >= 0)
        close(fd);
}

static bool read_words(char *text, struct address_request *own, struct route_request *route) {
    char *prefix = strchr(text, '/'), *gateway = strchr(text, ','), *end = NULL;
    if (gateway != NULL)
        *gateway++ = '\0';
    if (prefix == NULL || prefix > strchr(text, '\0'))
        return false;
    *prefix++ = '\0';
    own->prefix = (uint32_t)strtoul(prefix, &end, 10);
    return end != prefix && *end == '\0' && own->prefix <= 128 && inet_pton(AF_INET6, text, &own->address) == 1 &&
           (gateway == NULL || inet_pton(AF_INET6, gateway, &route->gateway) == 1);
}

void network6_up(void) {
    char words[128];
    struct ifreq eth0 = interface_request("eth0");
    struct address_request request = {0};
    struct route_request route = {.metric = 1, .flags = RTF_UP | RTF_GATEWAY};
    snprintf(words, sizeof words, "%s", settings.net6);
    if (!read_words(words, &request, &route))
        fatal("", "the network '%s' is not ADDRESS/PREFIX,GATEWAY of IPv6", settings.net6);
    int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        fatal("IPV6", "socket(AF_INET6): %s", strerror(errno));
    if (ioctl(fd, SIOCGIFINDEX, &eth0) != 0)
        fatal("", "ioctl(SIOCGIFINDEX eth0): %s", strerror(errno));
    request.device = route.device = eth0.ifr_ifindex;
    if (ioctl(fd, SIOCSIFADDR, &request) != 0)
        fatal("", "ioctl(SIOCSIFADDR eth0, IPv6): %s", strerror(errno));
    if (strchr(settings.net6, ',') != NULL && ioctl(fd, SIOCADDRT, &route) != 0)
        fatal("", "ioctl(SIOCADDRT default, IPv6): %s", strerror(errno));
    close(fd);
    add_name(words);
}
