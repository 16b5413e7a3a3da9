/* SPDX-License-Identifier: Apache-2.0 */
/* The network: loopback always (where the kernel has it), eth0 with the address we were told. No netlink: ioctl. */
#include "init/machine/network.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/interface.h"
#include "init/base/power_off.h"
#include "init/base/serial_line.h"
#include "init/machine/lease.h"
#include "init/machine/net_words.h"
#include "init/machine/network6.h"
#include "init/settings/settings.h"

static void set_eth0(int fd) {
    struct net_words net;
    if (!net_words_read(&net, settings.net) || net.prefix < 1)
        fatal("", "the network '%s' is not ADDRESS/PREFIX,GATEWAY,DNS", settings.net);
    struct in_addr own, via = {0};
    if (inet_aton(net.address, &own) == 0 || (net.gateway[0] != '\0' && inet_aton(net.gateway, &via) == 0))
        fatal("", "the network '%s' has no valid address", settings.net);
    if (settings.net6 != NULL)
        network6_sure();
    const char *failed = interface_configure(fd, "eth0", own, net.prefix, via);
    if (failed != NULL)
        fatal(strcmp(failed, "SIOCSIFADDR") == 0 ? "VIRTIO_NET" : "", "ioctl(%s eth0): %s", failed, strerror(errno));
    if (settings.net6 != NULL)
        network6_up();
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
    if (!interface_up(fd, "lo"))
        line_note("", "ioctl(SIOCSIFFLAGS lo): %s", strerror(errno));
    if (settings.net != NULL && !lease_given())
        set_eth0(fd);
    close(fd);
}
