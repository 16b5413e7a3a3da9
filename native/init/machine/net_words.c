/* SPDX-License-Identifier: Apache-2.0 */
#include "init/machine/net_words.h"

#include <stdlib.h>
#include <string.h>

/* Digits and points at the start of a text; returns what follows them. */
static const char *take(const char *text, char address[16]) {
    size_t length = strspn(text, "0123456789.");
    size_t kept = length < 15 ? length : 15;
    memcpy(address, text, kept);
    address[kept] = '\0';
    return text + kept;
}

bool net_words_read(struct net_words *words, const char *text) {
    char *rest;
    memset(words, 0, sizeof *words);
    text = take(text, words->address);
    if (words->address[0] == '\0' || *text != '/' || text[1] < '0' || text[1] > '9')
        return false;
    unsigned long prefix = strtoul(text + 1, &rest, 10);
    words->prefix = prefix <= 32 ? (int)prefix : 0;
    if (*rest == ',')
        rest = (char *)take(rest + 1, words->gateway);
    if (*rest == ',')
        take(rest + 1, words->dns);
    return true;
}
