/* SPDX-License-Identifier: Apache-2.0 */
/* A tar of a path in the container, on standard output. */
#ifndef VT_ARCHIVE_H
#define VT_ARCHIVE_H

#include <stdbool.h>

/* Write the tar. Its first entry is `path` itself, under its last name, or "." for "/" and where `path` ends in "/.".
 * Links are written as links; with `follow`, what a link leads to that `path` itself is. Returns the exit status: 1
 * when something could not be read, which is said on standard error. */
int archive(const char *path, bool follow);

#endif
