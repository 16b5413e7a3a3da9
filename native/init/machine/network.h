/* SPDX-License-Identifier: Apache-2.0 */
/* The network: loopback always (where the kernel has it), eth0 with the address we were told. */
#ifndef VT_NETWORK_H
#define VT_NETWORK_H

void network_up(void);

#endif
