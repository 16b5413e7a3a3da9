/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of DHCP (RFC 2131, options of RFC 2132), as bytes. */
#ifndef VT_DHCP_MESSAGE_H
#define VT_DHCP_MESSAGE_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DHCP_MAC 6
/* The longest message that a client has to take. */
#define DHCP_BYTES 576

enum dhcp_kind { DHCP_DISCOVER = 1, DHCP_OFFER = 2, DHCP_REQUEST = 3, DHCP_ACK = 5, DHCP_NAK = 6 };

/* What the client asks. `own`: the address that it has, 0 for none; `wanted` and `server`: those of an offer. */
struct dhcp_question {
    enum dhcp_kind kind;
    uint32_t id;
    uint8_t mac[DHCP_MAC];
    const char *hostname;
    struct in_addr own, wanted, server;
};

/* What a server says; times in seconds, 0 where it says none. */
struct dhcp_answer {
    enum dhcp_kind kind;
    struct in_addr address, gateway, dns, server;
    int prefix;
    uint32_t lease_s, renew_s;
};

/* Returns the length. */
size_t dhcp_write(const struct dhcp_question *question, uint8_t message[DHCP_BYTES]);

/* False for what is no answer to this client: of another client, of another question, without an address that a host
 * can have, or damaged. A refusal (DHCP_NAK) has no address. */
bool dhcp_read(const uint8_t *message, size_t length, uint32_t id, const uint8_t mac[DHCP_MAC],
               struct dhcp_answer *answer);

#endif
