/* SPDX-License-Identifier: Apache-2.0 */
/* A network interface, set by ioctl: no netlink is asked for. */
#ifndef VT_INTERFACE_H
#define VT_INTERFACE_H

#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>

/* A request about an interface. */
struct ifreq interface_request(const char *name);

/* `fd`: any socket of IPv4. */
bool interface_up(int fd, const char *name);

/* Give it an address, bring it up, and lead the default route over `via` (0 for none), which may lie outside of the
 * subnet. Returns NULL, or the call that failed, with errno. */
const char *interface_configure(int fd, const char *name, struct in_addr own, int prefix, struct in_addr via);

#endif
