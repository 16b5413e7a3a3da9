/* SPDX-License-Identifier: Apache-2.0 */
#include "common/interface.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/route.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

struct ifreq interface_request(const char *name) {
    struct ifreq request = {0};
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
    return request;
}

static void set_address(struct sockaddr *where, struct in_addr address) {
    struct sockaddr_in full = {.sin_family = AF_INET, .sin_addr = address};
    memcpy(where, &full, sizeof full);
}

bool interface_up(int fd, const char *name) {
    struct ifreq flags = interface_request(name);
    if (ioctl(fd, SIOCGIFFLAGS, &flags) != 0)
        return false;
    flags.ifr_flags |= IFF_UP | IFF_RUNNING;
    return ioctl(fd, SIOCSIFFLAGS, &flags) == 0;
}

/* One that is there already is no failure. */
static bool add_route(int fd, const char *name, uint16_t flags, struct in_addr to, struct in_addr mask,
                      struct in_addr via) {
    char device[IFNAMSIZ];
    struct rtentry route = {.rt_flags = RTF_UP | flags};
    snprintf(device, sizeof device, "%s", name);
    set_address(&route.rt_dst, to);
    set_address(&route.rt_genmask, mask);
    if ((flags & RTF_GATEWAY) != 0)
        set_address(&route.rt_gateway, via);
    else
        route.rt_dev = device;
    return ioctl(fd, SIOCADDRT, &route) == 0 || errno == EEXIST;
}

const char *interface_configure(int fd, const char *name, struct in_addr own, int prefix, struct in_addr via) {
    struct in_addr none = {0}, all = {~0u}, mask = {prefix > 0 ? htonl(~0u << (32 - prefix)) : 0};
    struct ifreq ask = interface_request(name);
    set_address(&ask.ifr_addr, own);
    if (ioctl(fd, SIOCSIFADDR, &ask) != 0)
        return "SIOCSIFADDR";
    set_address(&ask.ifr_netmask, mask);
    if (ioctl(fd, SIOCSIFNETMASK, &ask) != 0)
        return "SIOCSIFNETMASK";
    if (!interface_up(fd, name))
        return "SIOCSIFFLAGS";
    if (via.s_addr == 0)
        return NULL;
    /* Some clouds give an address without a subnet, and a gateway beside it. */
    if (((own.s_addr ^ via.s_addr) & mask.s_addr) != 0 && !add_route(fd, name, RTF_HOST, via, all, none))
        return "SIOCADDRT";
    return add_route(fd, name, RTF_GATEWAY, none, none, via) ? NULL : "SIOCADDRT";
}
