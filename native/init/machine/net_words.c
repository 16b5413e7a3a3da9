/* SPDX-License-Identifier: Apache-2.0 */
#include "init/machine/net_words.h"

#include <arpa/inet.h>
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

/* The field of that number of a text with ':' between fields; empty where there is none. */
static const char *field(const char *text, int number) {
    for (; number > 0 && *text != '\0'; text++)
        number -= *text == ':';
    return text;
}

/* Ones at the start of a mask; 0 where others follow. */
static int prefix_of(const char *mask) {
    struct in_addr found;
    if (inet_aton(mask, &found) == 0)
        return 0;
    unsigned int bits = ntohl(found.s_addr);
    int prefix = __builtin_popcount(bits);
    return prefix > 0 && bits == ~0u << (32 - prefix) ? prefix : 0;
}

/* As the kernel has it: ADDRESS:SERVER:GATEWAY:MASK:NAME:DEVICE:HOW:DNS. */
static bool read_kernel_word(struct net_words *words, const char *text) {
    char mask[16];
    take(field(text, 2), words->gateway);
    take(field(text, 3), mask);
    take(field(text, 7), words->dns);
    words->prefix = prefix_of(mask);
    return true;
}

bool net_words_read(struct net_words *words, const char *text) {
    char *rest;
    memset(words, 0, sizeof *words);
    const char *behind = take(text, words->address);
    if (words->address[0] == '\0')
        return false;
    if (*behind == ':')
        return read_kernel_word(words, text);
    if (*behind != '/' || behind[1] < '0' || behind[1] > '9')
        return false;
    unsigned long prefix = strtoul(behind + 1, &rest, 10);
    words->prefix = prefix <= 32 ? (int)prefix : 0;
    if (*rest == ',')
        rest = (char *)take(rest + 1, words->gateway);
    if (*rest == ',')
        take(rest + 1, words->dns);
    return true;
}
