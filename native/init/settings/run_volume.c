/* SPDX-License-Identifier: Apache-2.0 */
#include "init/settings/run_volume.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "init/base/disks.h"
#include "init/base/power_off.h"
#include "init/base/serial_line.h"

#define RUN_NODE "/.vmtailor/rw/run"
#define MOST (4 << 20)

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
static void take_key_away(int fd, const struct settings *settings, const char *data) {
    if (settings->key_text + 2 * sizeof settings->key > data + SECTOR)
        fatal("", "the run volume's key is not in its first sector");
    ssize_t written = pwrite(fd, zeros, sizeof zeros, 0);
    if (written != (ssize_t)sizeof zeros)
        fatal("", "write(the run volume, to take its key away): %s", written < 0 ? strerror(errno) : "too short");
}

/* The run volume: "vtrun LENGTH\n", then so many bytes of records; the rest of the disk is padding. */
void run_volume_read(struct settings *settings) {
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
    const char *wrong = settings_read(settings, data + skip, length);
    if (settings->key_text != NULL) {
        line_key(settings->key);
        take_key_away(fd, settings, data);
    }
    close(fd);
    if (wrong != NULL)
        fatal("", "the run volume: %s", wrong);
}
