/* SPDX-License-Identifier: Apache-2.0 */
/* Whole files, in memory. */
#ifndef VT_READ_FILE_H
#define VT_READ_FILE_H

#include <stddef.h>

/* Read all of a file (at most `most` bytes) into fresh memory, NUL at its end; NULL and errno when it cannot. */
char *read_file(const char *path, size_t most, size_t *length);

#endif
