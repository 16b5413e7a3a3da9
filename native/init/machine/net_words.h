/* SPDX-License-Identifier: Apache-2.0 */
/* "ADDRESS/PREFIX,GATEWAY,DNS", as the host says what the network is, or what the kernel's word `ip=` has. */
#ifndef VT_NET_WORDS_H
#define VT_NET_WORDS_H

#include <stdbool.h>

/* Parts that are not there are empty, or 0. */
struct net_words {
    char address[16], gateway[16], dns[16];
    int prefix;
};

/* False where it does not begin with an address, and a prefix or further fields of the kernel's word. */
bool net_words_read(struct net_words *words, const char *text);

#endif
