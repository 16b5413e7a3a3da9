/* SPDX-License-Identifier: Apache-2.0 */
/* The network: loopback always (where the kernel has it), eth0 with the address we were told. No netlink: ioctl. */
#include "init/machine/network.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <net/route.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "init/base/power_off.h"
#include "init/base/serial_line.h"
#include "init/machine/net_words.h"
#include "init/machine/network6.h"
#include "init/settings/settings.h"

static struct ifreq request(const char *name) {
    struct ifreq request = {0};
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
    return request;
}

static void set_address(struct sockaddr *where, struct in_addr address) {
    struct sockaddr_in full = {.sin_family = AF_INET, .sin_addr = address};
    memcpy(where, &full, sizeof full);
}

static bool bring_up(int fd, const char *name) {
    struct ifreq flags = request(name);
    if (ioctl(fd, SIOCGIFFLAGS, &flags) != 0)
        return false;
    flags.ifr_flags |= IFF_UP | IFF_RUNNING;
    return ioctl(fd, SIOCSIFFLAGS, &flags) == 0;
}

static void set_eth0(int fd) {
    struct net_words net;
    if (!net_words_read(&net, settings.net) || net.prefix < 1)
        fatal("", "the network '%s' is not ADDRESS/PREFIX,GATEWAY,DNS", settings.net);
    struct in_addr own, via, mask = {htonl(~0u << (32 - net.prefix))};
    if (inet_aton(net.address, &own) == 0 || (net.gateway[0] != '\0' && inet_aton(net.gateway, &via) == 0))
        fatal("", "the network '%s' has no valid address", settings.net);

    struct ifreq ask = request("eth0");
    set_address(&ask.ifr_addr, own);
    if (ioctl(fd, SIOCSIFADDR, &ask) != 0)
        fatal("VIRTIO_NET", "ioctl(SIOCSIFADDR eth0): %s", strerror(errno));
    set_address(&ask.ifr_netmask, mask);
    if (ioctl(fd, SIOCSIFNETMASK, &ask) != 0)
        fatal("", "ioctl(SIOCSIFNETMASK eth0): %s", strerror(errno));
    if (settings.net6 != NULL)
        network6_sure();
    if (!bring_up(fd, "eth0"))
        fatal("", "ioctl(SIOCSIFFLAGS eth0): %s", strerror(errno));
    if (settings.net6 != NULL)
        network6_up();
    if (net.gateway[0] == '\0')
        return;
    struct rtentry route = {.rt_flags = RTF_UP | RTF_GATEWAY};
    set_address(&route.rt_dst, (struct in_addr){0});
    set_address(&route.rt_genmask, (struct in_addr){0});
    set_address(&route.rt_gateway, via);
    if (ioctl(fd, SIOCADDRT, &route) != 0)
        fatal("", "ioctl(SIOCADDRT default): %s", strerror(errno));
}

static bool connects(const struct step *step) {
    return step->kind == STEP_HTTP || step->kind == STEP_TCP;
}

static bool exercise_needs_it(void) {
    bool needs = connects(&settings.ready);
    for (size_t i = 0; i < settings.step_count; i++)
        needs = needs || connects(&settings.steps[i]);
    return needs;
}

void network_up(void) {
    bool demanded = settings.net != NULL || exercise_needs_it();
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        if (demanded)
            fatal(errno == ENOSYS ? "NET" : "INET", "socket(AF_INET): %s", strerror(errno));
        return; /* a container without a network in a kernel without one */
    }
    if (!bring_up(fd, "lo"))
        line_note("", "ioctl(SIOCSIFFLAGS lo): %s", strerror(errno));
    if (settings.net != NULL)
        set_eth0(fd);
    close(fd);
}
