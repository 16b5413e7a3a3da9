/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the SHA-256 of "abc", as the kernel computes it. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The address of an algorithm, as the kernel's interface has it: its header is not there for every C library. */
struct algorithm {
    uint16_t family;
    char type[14];
    uint32_t features, mask;
    char name[64];
};

static int fail(const char *what) {
    perror(what);
    return 1;
}

int main(void) {
    struct algorithm wanted = {.family = AF_ALG, .type = "hash", .name = "sha256"};
    unsigned char sum[32];
    int listening = socket(AF_ALG, SOCK_SEQPACKET, 0);
    if (listening < 0)
        return fail("socket");
    if (bind(listening, (const struct sockaddr *)&wanted, sizeof wanted) != 0)
        return fail("bind");
    int hashing = accept(listening, NULL, NULL);
    if (write(hashing, "abc", 3) != 3 || read(hashing, sum, sizeof sum) != (ssize_t)sizeof sum)
        return fail("hash");
    for (size_t i = 0; i < sizeof sum; i++)
        printf("%02x", sum[i]);
    puts("");
    return 0;
}
