/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VT_NETWORK6_H
#define VT_NETWORK6_H

/* Before eth0 is up: nobody else has the address that we were told, so it is not asked for. */
void network6_sure(void);

/* Once it is up: give it the address "ADDRESS/PREFIX,GATEWAY", and the machine's name that address. */
void network6_up(void);

#endif
