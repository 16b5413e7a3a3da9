// SPDX-License-Identifier: Apache-2.0
// Listens on netperf's port until it is ended.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

int main(void) {
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(12865)};
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&here, sizeof(here)) < 0 || listen(listener, 1) < 0)
        return 1;
    for (;;)
        pause();
}
