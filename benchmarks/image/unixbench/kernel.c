// SPDX-License-Identifier: Apache-2.0
// Tests of what the kernel does: files, pipes, processes, calls, and scripts.
#define _GNU_SOURCE
#include "unixbench.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

// --- A file copied again and again, in records of `size` bytes; both ends go back to the start after `blocks` of them.
static struct outcome copy_file(double seconds, size_t size, long blocks) {
    char *buffer = malloc(size);
    int from = open("from", O_RDWR | O_CREAT | O_TRUNC, 0600), to = open("to", O_RDWR | O_CREAT | O_TRUNC, 0600);
    double done = 0, before;
    if (!buffer || from < 0 || to < 0)
        test_failed("open");
    memset(buffer, 'x', size);
    for (long i = 0; i < blocks; i++)
        if (write(from, buffer, size) != (ssize_t)size)
            test_failed("write");
    lseek(from, 0, SEEK_SET);
    start_timer(seconds);
    before = now_s();
    for (long i = 0; !over && done < 1024 * most; i++) {
        if (i == blocks) {
            lseek(from, 0, SEEK_SET);
            lseek(to, 0, SEEK_SET);
            i = 0;
        }
        ssize_t got = read(from, buffer, size);
        ssize_t put = got > 0 ? write(to, buffer, (size_t)got) : got;
        if (put < 0 && errno != EINTR)
            test_failed("copy");
        done += put > 0 ? (double)put : 0;
    }
    return (struct outcome){done / 1024, now_s() - before};
}

struct outcome copy_small(double seconds) {
    return copy_file(seconds, 1024, 2000);
}
struct outcome copy_tiny(double seconds) {
    return copy_file(seconds, 256, 500);
}
struct outcome copy_large(double seconds) {
    return copy_file(seconds, 4096, 8000);
}

// --- 512 bytes into a pipe and out again, by one process.
struct outcome pipe_throughput(double seconds) {
    char record[512] = {0};
    int ends[2];
    double count = 0, before;
    if (pipe(ends) < 0)
        test_failed("pipe");
    start_timer(seconds);
    for (before = now_s(); !over && count < most; count++)
        if (write(ends[1], record, sizeof(record)) < 0 || read(ends[0], record, sizeof(record)) < 0)
            if (errno != EINTR)
                test_failed("pipe");
    return (struct outcome){count, now_s() - before};
}

// --- Two processes that hand a growing number to each other through two pipes. One that gets a wrong one says so.
static _Noreturn void answer(int from, int to) {
    for (unsigned long expected = 0, got;; expected++) {
        if (read(from, &got, sizeof(got)) != sizeof(got))
            _exit(0);
        if (got != expected || write(to, &got, sizeof(got)) != sizeof(got))
            _exit(1);
    }
}

struct outcome context_switches(double seconds) {
    int there[2], back[2], status;
    unsigned long number = 0, got;
    if (pipe(there) < 0 || pipe(back) < 0)
        test_failed("pipe");
    pid_t child = fork();
    if (child < 0)
        test_failed("fork");
    if (child == 0) {
        close(there[1]);
        close(back[0]);
        answer(there[0], back[1]);
    }
    start_timer(seconds);
    double before = now_s();
    while (!over && (double)number < most) {
        if (write(there[1], &number, sizeof(number)) != sizeof(number) || read(back[0], &got, sizeof(got)) < 0) {
            if (errno == EINTR)
                break;
            test_failed("context1");
        }
        if (got != number++)
            test_failed("context1 came out of step");
    }
    double took = now_s() - before;
    close(there[1]);
    waitpid(child, &status, 0);
    return (struct outcome){(double)number, took};
}

// --- A process that is made, ends at once, and is waited for.
struct outcome process_creation(double seconds) {
    double count = 0, before;
    int status;
    start_timer(seconds);
    for (before = now_s(); !over && count < most; count++) {
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        if (child < 0 && errno != EINTR)
            test_failed("fork");
        while (child > 0 && waitpid(child, &status, 0) < 0)
            if (errno != EINTR)
                test_failed("wait");
    }
    return (struct outcome){count, now_s() - before};
}

// --- Five calls that do next to nothing.
struct outcome system_calls(double seconds) {
    double count = 0, before;
    start_timer(seconds);
    for (before = now_s(); !over && count < most; count++) {
        close(dup(0));
        syscall(SYS_getpid);
        syscall(SYS_getuid);
        umask(022);
    }
    return (struct outcome){count, now_s() - before};
}

// --- A script, so many of it at once, again and again. A run that had begun in time is waited for, and counts.
static struct outcome scripts(double seconds, const char *at_once) {
    double count = 0, before;
    start_timer(seconds);
    for (before = now_s(); !over && count < most;) {
        int status = 0;
        pid_t child = fork();
        if (child == 0) {
            execl("/bin/sh", "sh", "/bench/scripts.sh", at_once, (char *)NULL);
            _exit(127);
        }
        if (child < 0)
            test_failed("fork");
        while (waitpid(child, &status, 0) < 0)
            if (errno != EINTR)
                test_failed("wait");
        if (status != 0) {
            errno = 0;
            test_failed("the script failed");
        }
        count++;
    }
    return (struct outcome){count, now_s() - before};
}

struct outcome scripts_one(double seconds) {
    return scripts(seconds, "1");
}
struct outcome scripts_eight(double seconds) {
    return scripts(seconds, "8");
}
