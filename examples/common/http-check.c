// SPDX-License-Identifier: Apache-2.0
// Health check of a web server: exits 0 when GET / on 127.0.0.1:PORT is answered with status 200, 1 otherwise.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int argc, char **argv) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(argc > 1 ? atoi(argv[1]) : 80)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int connection = socket(AF_INET, SOCK_STREAM, 0);
    if (connection < 0 || connect(connection, (struct sockaddr *)&address, sizeof address) != 0) {
        perror("http-check: connect");
        return 1;
    }
    static const char request[] = "GET / HTTP/1.0\r\nHost: localhost\r\n\r\n";
    if (write(connection, request, sizeof request - 1) != sizeof request - 1) {
        perror("http-check: write");
        return 1;
    }
    char answer[512] = "";
    size_t length = 0;
    while (length < 12) {
        ssize_t got = read(connection, answer + length, sizeof answer - 1 - length);
        if (got <= 0)
            break;
        length += got;
    }
    if (length < 12 || strncmp(answer, "HTTP/1.", 7) != 0 || strncmp(answer + 8, " 200", 4) != 0) {
        fprintf(stderr, "http-check: no 200: %.40s\n", answer);
        return 1;
    }
    return 0;
}
