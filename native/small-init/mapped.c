// SPDX-License-Identifier: Apache-2.0
#include "small-init/mapped.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "small-init/say.h"

#define WORD "dm-mod.create=\""
#define WAIT_MS 10000
#define ROOM 16384

/* Of the kernel's <linux/dm-ioctl.h>, which not every C library's compiler finds. */
struct request {
    uint32_t version[3], data_size, data_start, target_count;
    int32_t open_count;
    uint32_t flags, event, padding;
    uint64_t device;
    char name[128], uuid[129], data[7];
};
struct target {
    uint64_t start, length;
    int32_t status;
    uint32_t next;
    char type[16];
};
#define CREATE _IOWR(0xfd, 3, struct request)
#define RESUME _IOWR(0xfd, 6, struct request)
#define LOAD _IOWR(0xfd, 9, struct request)

static union {
    struct request head;
    char room[ROOM];
} sent;

static void begin(const char *name, const char *uuid) {
    memset(&sent, 0, sizeof sent);
    sent.head.version[0] = 4;
    sent.head.data_size = sizeof sent;
    sent.head.data_start = sizeof sent.head;
    snprintf(sent.head.name, sizeof sent.head.name, "%s", name);
    snprintf(sent.head.uuid, sizeof sent.head.uuid, "%s", uuid);
}

/* The rows of the table behind the head: `START SIZE linear DEVICE OFFSET`, separated by commas. */
static void add_rows(char *rows) {
    size_t at = sizeof sent.head;
    for (char *row = strtok_r(rows, ",", &rows); row; row = strtok_r(NULL, ",", &rows)) {
        struct target one = {0};
        unsigned long long start, length, offset;
        char type[16], device[64];
        if (sscanf(row, "%llu %llu %15s %63s %llu", &start, &length, type, device, &offset) != 5)
            fatal("%s...: no row of a volume: %s", WORD, row);
        if (at + sizeof one + 128 > sizeof sent)
            fatal("%s...: too many rows", WORD);
        char *words = sent.room + at + sizeof one;
        size_t size = sizeof one + snprintf(words, 120, "%s %llu", device, offset) + 1;
        size = (size + 7) & ~(size_t)7;
        one.start = start;
        one.length = length;
        one.next = size;
        snprintf(one.type, sizeof one.type, "%s", type);
        memcpy(sent.room + at, &one, sizeof one);
        at += size;
        sent.head.target_count++;
    }
}

void map_volume(const char *command_line) {
    static char text[4096], rows[4096];
    char *field[5], *rest = text;
    const char *word = strstr(command_line, WORD);
    struct timespec pause = {0, 2000000};
    if (!word || !access("/dev/dm-0", F_OK))
        return;
    snprintf(text, sizeof text, "%s", word + strlen(WORD));
    text[strcspn(text, "\"")] = '\0';
    for (size_t i = 0; i < 5; i++)
        if (!(field[i] = i < 4 ? strsep(&rest, ",") : rest))
            fatal("%s...: no volume", WORD);
    int control = open("/dev/mapper/control", O_RDWR | O_CLOEXEC);
    if (control < 0)
        fatal("/dev/mapper/control: %s", strerror(errno));
    begin(field[0], field[1]);
    if (ioctl(control, CREATE, &sent))
        fatal("the volume %s: %s", field[0], strerror(errno));
    for (int waited = 0;; waited += 2) { /* its disks may not be there yet */
        begin(field[0], "");
        snprintf(rows, sizeof rows, "%s", field[4]);
        add_rows(rows);
        if (!ioctl(control, LOAD, &sent))
            break;
        if (waited > WAIT_MS)
            fatal("the table of the volume %s: %s", field[0], strerror(errno));
        nanosleep(&pause, NULL);
    }
    begin(field[0], "");
    if (ioctl(control, RESUME, &sent))
        fatal("the volume %s: %s", field[0], strerror(errno));
    close(control);
}
