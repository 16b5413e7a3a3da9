// SPDX-License-Identifier: GPL-2.0-or-later
/* The result file: chunks of little-endian records. drivers/monitors/calls_file.py describes its layout. */
#ifndef VT_WRITER_H
#define VT_WRITER_H

#include "tcg-plugin/config.h"

#include <stdint.h>

// What was executed since reset: outside of the tree, in it, and by programs.
struct executed {
    uint64_t early, kernel, user;
};

// Create the file and write what the numbers in it stand for. Ends QEMU on failure, as do the others.
void writer_open(const char *path, const struct config *config);

// The stretch that ends at a mark (or at the end, mark -1): all that is new since the last one.
void writer_stretch(int mark, const struct executed *now, const uint64_t *users, unsigned user_count);

// The end mark; closes the file.
void writer_close(void);

#endif
