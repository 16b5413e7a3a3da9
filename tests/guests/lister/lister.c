/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the kernel for its network interfaces, as many programs do when they start, and says whether there are any. */
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>

/* The kernel's interface as far as it is used here: its headers are not there for every C library. */
#define ROUTE 0
#define GET_LINK 18
#define NEW_LINK 16
#define DONE 3
#define REQUEST_ALL 0x301

struct head {
    uint32_t length;
    uint16_t type, flags;
    uint32_t sequence, port;
};

struct address {
    uint16_t family, padding;
    uint32_t port, groups;
};

static int fail(const char *what) {
    perror(what);
    return 1;
}

int main(void) {
    struct {
        struct head head;
        uint32_t family;
    } question = {.head = {.length = sizeof question, .type = GET_LINK, .flags = REQUEST_ALL}};
    struct address kernel = {.family = AF_NETLINK};
    union {
        struct head head;
        char bytes[16384];
    } answer;
    int links = 0;
    int fd = socket(AF_NETLINK, SOCK_RAW, ROUTE);
    if (fd < 0)
        return fail("socket");
    if (sendto(fd, &question, sizeof question, 0, (const struct sockaddr *)&kernel, sizeof kernel) < 0)
        return fail("sendto");
    for (;;) {
        ssize_t got = recv(fd, &answer, sizeof answer, 0);
        if (got < (ssize_t)sizeof answer.head)
            return fail("recv");
        for (ssize_t at = 0; at + (ssize_t)sizeof(struct head) <= got;) {
            const struct head *head = (const struct head *)(answer.bytes + at);
            if (head->type == DONE) {
                puts(links > 0 ? "there are interfaces" : "there is none");
                return links > 0 ? 0 : 1;
            }
            links += head->type == NEW_LINK;
            at += (head->length + 3) & ~3u;
        }
    }
}
