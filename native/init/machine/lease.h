/* SPDX-License-Identifier: Apache-2.0 */
/* The network by DHCP, where the host says "dhcp" in place of an address. */
#ifndef VT_LEASE_H
#define VT_LEASE_H

#include <stdbool.h>

bool lease_asked(void);

/* The client has set the address that the settings have. */
bool lease_given(void);

/* Start the client, which stays, and wait some time for an address, which /etc/hosts and /etc/resolv.conf then have.
 * Without an answer the client goes on asking. Returns "ADDRESS/PREFIX,GATEWAY,DNS", or NULL. */
const char *lease_wait(void);

#endif
