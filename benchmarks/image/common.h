// SPDX-License-Identifier: Apache-2.0
// A clock, an error, and a file that is there: what the parts of `bench` share.
#pragma once
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static inline double now_s(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

static inline int fail(const char *what) {
    fprintf(stderr, "bench: %s: %s\n", what, strerror(errno));
    return 1;
}

static inline bool create(const char *path) {
    int file = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
    return file >= 0 && close(file) == 0;
}
