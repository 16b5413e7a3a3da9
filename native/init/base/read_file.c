/* SPDX-License-Identifier: Apache-2.0 */
#include "init/base/read_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

char *read_file(const char *path, size_t most, size_t *length) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    size_t held = 0, room = 4096;
    char *data = malloc(room + 1);
    while (data != NULL) {
        ssize_t got = read(fd, data + held, room - held);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        held += (size_t)got;
        if (held == most)
            break;
        if (held == room) {
            room = 2 * room < most ? 2 * room : most;
            char *larger = realloc(data, room + 1);
            if (larger == NULL)
                break;
            data = larger;
        }
    }
    close(fd);
    if (data == NULL)
        return NULL;
    data[held] = '\0';
    if (length != NULL)
        *length = held;
    return data;
}
