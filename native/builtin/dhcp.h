/* SPDX-License-Identifier: Apache-2.0 */
/* A DHCP client, over UDP alone: the kernel needs no packet sockets. */
#ifndef VT_DHCP_H
#define VT_DHCP_H

/* Get an address for an interface, keep it, and print "ADDRESS/PREFIX,GATEWAY,DNS" when it is first there. Returns only
 * where there is nothing to renew, or something does not work. */
int dhcp(const char *interface, const char *hostname);

#endif
