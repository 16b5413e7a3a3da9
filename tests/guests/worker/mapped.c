// SPDX-License-Identifier: Apache-2.0
// FILE TEXT: makes a file, and writes a text to it through a mapping that is shared.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int count, char **words) {
    int fd = count == 3 ? open(words[1], O_RDWR | O_CREAT, 0644) : -1;
    size_t length = fd < 0 ? 0 : strlen(words[2]);
    char *page = MAP_FAILED;
    if (length > 0 && ftruncate(fd, (off_t)length) == 0)
        page = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) {
        perror("mapped");
        return 1;
    }
    memcpy(page, words[2], length);
    return msync(page, length, MS_SYNC) != 0;
}
