/* SPDX-License-Identifier: Apache-2.0 */
/* From a copy of init to the container's program: identity, environment, directory, execve. */
#ifndef VT_PROGRAM_H
#define VT_PROGRAM_H

#include <stdbool.h>

#include "common/records.h"
#include "init/base/marks.h"
#include "init/container/order.h"

#define CANNOT_EXECUTE 126
#define NOT_FOUND 127

/* What a child says on its status pipe: an entry mark, or why it could not execute. */
struct child_status {
    char what; /* 'm' mark, 'e' error */
    int error;
    int exit_code;
    struct stamp stamp;
    char call[80];
    char symbol[24]; /* what the kernel lacks, or "" */
};

/* Find the user, and complete the environment. NULL, or what is wrong. */
const char *program_prepare(void);
/* In the child that becomes a further process: the same, as it is told. NULL, or what is wrong. */
const char *program_prepare_further(const struct order *order);
/* Make a directory and those above it, where they are missing. */
void make_directories(const char *path);
/* Become the container's `argv`; with `mark`, mark "entry" just before. A failure goes to `status_fd`. */
_Noreturn void program_become(struct list *argv, int status_fd, bool mark);
/* Say on `status_fd` that `format` (a call, with `what` in it) failed with `error`, and exit. */
_Noreturn void program_give_up(int status_fd, int exit_code, int error, const char *format, const char *what);

#endif
