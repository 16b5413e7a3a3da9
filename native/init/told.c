/* SPDX-License-Identifier: Apache-2.0 */
/* What init was told: by the image (/.vmtailor/config), by the run volume, by the command line. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "init.h"

#define CONFIG "/.vmtailor/config"
#define RUN_NODE "/.vmtailor/rw/run"
#define MOST (4 << 20)

struct settings told;

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

/* The run volume: "vtrun LENGTH\n", then so many bytes of records; the rest of the disk is padding. */
static void read_run_volume(void) {
    if (mknod(RUN_NODE, S_IFBLK | 0600, disk_number(1)) != 0)
        fatal("", "mknod(%s): %s", RUN_NODE, strerror(errno));
    int fd = open(RUN_NODE, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        fatal("", "open(the run volume, second disk): %s", strerror(errno));
    unlink(RUN_NODE);
    char head[512];
    if (read(fd, head, sizeof head) != sizeof head || memcmp(head, "vtrun ", 6) != 0)
        fatal("", "the second disk is not a run volume");
    char *end;
    unsigned long length = strtoul(head + 6, &end, 10);
    size_t skip = (size_t)(end - head) + 1;
    if (*end != '\n' || length == 0 || length > MOST)
        fatal("", "the run volume has a damaged head");
    char *text = malloc(length);
    if (text == NULL)
        fatal("", "no memory for the run volume (%lu bytes)", length);
    size_t held = sizeof head - skip < length ? sizeof head - skip : length;
    memcpy(text, head + skip, held);
    while (held < length) {
        ssize_t got = read(fd, text + held, length - held);
        if (got <= 0)
            fatal("", "read(run volume): %s", got < 0 ? strerror(errno) : "too short");
        held += (size_t)got;
    }
    close(fd);
    const char *wrong = settings_read(&told, text, length);
    if (told.keyed)
        port_key(told.key);
    if (wrong != NULL)
        fatal("", "the run volume: %s", wrong);
}

void told_read(void) {
    settings_default(&told);
    size_t length;
    char *text = read_file(CONFIG, MOST, &length);
    if (text == NULL)
        fatal("", "open(%s): %s", CONFIG, strerror(errno));
    const char *wrong = settings_read(&told, text, length);
    if (wrong != NULL)
        fatal("", "%s: %s", CONFIG, wrong);
    if (getenv("VT_RUN") != NULL)
        read_run_volume();
    if (told.net == NULL)
        told.net = getenv("VT_NET");
}
