/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads blocks of a disk, many at a time, beside others that write there without an end.
 *
 *     queue serve WRITERS DISK       waits for a signal; so many processes write where DISK is a block device
 *     queue read AT_ONCE COUNT DISK  COUNT blocks by each of AT_ONCE processes, then says how many there were
 *
 * DISK is the name of a block device, or the path of a file. Which blocks those are is the same in every run.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCK 4096
#define MOST_BLOCKS 65536 /* of the disk that are used: 256 MB */

static char block[BLOCK] __attribute__((aligned(BLOCK)));

static int fail(const char *what) {
    perror(what);
    return 1;
}

/* Returns whether the disk is a block device, which then has a node. */
static int node_of(const char *disk, char *path, size_t size) {
    unsigned major_number, minor_number;
    snprintf(path, size, "/sys/block/%s/dev", disk);
    FILE *file = strchr(disk, '/') == NULL ? fopen(path, "re") : NULL;
    int found = file != NULL && fscanf(file, "%u:%u", &major_number, &minor_number) == 2;
    if (file != NULL)
        fclose(file);
    snprintf(path, size, found ? "/dev/%s" : "%s", disk);
    if (found)
        mknod(path, S_IFBLK | 0600, makedev(major_number, minor_number)); /* or it is there */
    return found;
}

static int repeat(int fd, uint32_t seed, long count, int writes, off_t blocks) {
    for (long i = 0; count == 0 || i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        off_t at = (off_t)(seed >> 8) % blocks * BLOCK;
        ssize_t done = writes ? pwrite(fd, block, BLOCK, at) : pread(fd, block, BLOCK, at);
        if (done != BLOCK)
            return fail(writes ? "write" : "read");
    }
    return 0;
}

static int serve(int writers, const char *disk) {
    char path[256];
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    sigprocmask(SIG_BLOCK, &ends, NULL);
    if (!node_of(disk, path, sizeof path))
        writers = 0;
    for (int i = 0; i < writers; i++) {
        if (fork() != 0)
            continue;
        sigprocmask(SIG_UNBLOCK, &ends, NULL);
        int fd = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
        exit(fd < 0 ? fail(path) : repeat(fd, 7919u * (unsigned)i + 1, 0, 1, MOST_BLOCKS));
    }
    int number;
    sigwait(&ends, &number);
    kill(0, SIGKILL);
    return 0;
}

static int read_blocks(int at_once, long count, const char *disk) {
    char path[256];
    struct stat found;
    int device = node_of(disk, path, sizeof path), failed = 0, status;
    int fd = open(path, O_RDONLY | O_CLOEXEC | (device ? O_DIRECT : 0));
    if (fd < 0 || fstat(fd, &found) != 0)
        return fail(path);
    off_t blocks = device ? MOST_BLOCKS : found.st_size / BLOCK;
    if (blocks == 0)
        return fail("less than a block");
    for (int i = 1; i < at_once; i++)
        if (fork() == 0)
            exit(repeat(fd, 104729u * (unsigned)i, count, 0, blocks));
    failed = repeat(fd, 104729u, count, 0, blocks);
    while (wait(&status) > 0)
        failed |= status;
    if (failed == 0)
        printf("%ld blocks\n", at_once * count);
    return failed != 0;
}

int main(int argc, char **argv) {
    if (argc == 4 && strcmp(argv[1], "serve") == 0)
        return serve(atoi(argv[2]), argv[3]);
    if (argc == 5 && strcmp(argv[1], "read") == 0)
        return read_blocks(atoi(argv[2]), atol(argv[3]), argv[4]);
    fprintf(stderr, "queue: serve WRITERS DISK, or read AT_ONCE COUNT DISK\n");
    return 2;
}
