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

/* Read and written past the page cache: whole sectors, at places that allow it. What was cached would stay. */
#define SECTOR 512
#define FIRST 4096
static char first[FIRST] __attribute__((aligned(FIRST)));
static char zeros[SECTOR] __attribute__((aligned(SECTOR)));

static int open_run_volume(void) {
    if (mknod(RUN_NODE, S_IFBLK | 0600, disk_number(1)) != 0)
        fatal("", "mknod(%s): %s", RUN_NODE, strerror(errno));
    int fd = open(RUN_NODE, O_RDWR | O_DIRECT | O_CLOEXEC);
    if (fd < 0)
        fd = open(RUN_NODE, O_RDONLY | O_DIRECT | O_CLOEXEC); /* enough where it holds no key */
    if (fd < 0)
        fatal("", "open(the run volume, second disk): %s", strerror(errno));
    unlink(RUN_NODE);
    return fd;
}

static char *read_whole(int fd, size_t length) {
    size_t held = 0, room = (length + FIRST - 1) / FIRST * FIRST;
    char *data = aligned_alloc(FIRST, room);
    if (data == NULL)
        fatal("", "no memory for the run volume (%zu bytes)", length);
    while (held < length) {
        ssize_t got = pread(fd, data + held, room - held, (off_t)held);
        if (got <= 0)
            fatal("", "read(run volume): %s", got < 0 ? strerror(errno) : "too short");
        held += (size_t)got;
    }
    return data;
}

/* The key must not be found where the container's root can read it: on the disk. */
static void take_key_away(int fd, const char *data) {
    if (told.key_text + 2 * sizeof told.key > data + SECTOR)
        fatal("", "the run volume's key is not in its first sector");
    ssize_t written = pwrite(fd, zeros, sizeof zeros, 0);
    if (written != (ssize_t)sizeof zeros)
        fatal("", "write(the run volume, to take its key away): %s", written < 0 ? strerror(errno) : "too short");
}

/* The run volume: "vtrun LENGTH\n", then so many bytes of records; the rest of the disk is padding. */
static void read_run_volume(void) {
    int fd = open_run_volume();
    ssize_t got = pread(fd, first, FIRST, 0);
    if (got < SECTOR || memcmp(first, "vtrun ", 6) != 0 || memchr(first, '\n', SECTOR) == NULL)
        fatal("", "the second disk is not a run volume");
    char *end;
    unsigned long length = strtoul(first + 6, &end, 10);
    if (*end != '\n' || length == 0 || length > MOST)
        fatal("", "the run volume has a damaged head");
    size_t skip = (size_t)(end - first) + 1;
    char *data = skip + length > (size_t)got ? read_whole(fd, skip + length) : first;
    const char *wrong = settings_read(&told, data + skip, length);
    if (told.key_text != NULL) {
        port_key(told.key);
        take_key_away(fd, data);
    }
    close(fd);
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
