// SPDX-License-Identifier: GPL-2.0-or-later
/* The result file: chunks of little-endian records. drivers/monitors/counts_file.py describes its layout. */
#ifndef VT_OUTPUT_H
#define VT_OUTPUT_H

#include "config.h"

// What was executed since reset, and the accesses to devices.
struct totals {
    uint64_t early, kernel, user, ports, mmio;
};

struct owner_counts {
    uint64_t kernel, user;
};

// Create the file and write what the numbers in it stand for. Ends QEMU on failure, as do the others.
void output_open(const char *path, const struct config *config);

// The stretch that ends at a mark (or at the end, mark -1).
void output_stretch(int mark, const struct totals *now, const struct owner_counts *owners, unsigned owner_count,
                    const uint64_t *devices, unsigned device_count);

void output_span(unsigned span, const struct totals *now);

// The names of memory-mapped devices, and the end mark; closes the file.
void output_close(char *const *devices, unsigned device_count);

#endif
