// SPDX-License-Identifier: GPL-2.0-or-later
/* The result file: chunks of little-endian records. drivers/monitors/counts_file.py describes its layout. */
#ifndef VT_OUTPUT_H
#define VT_OUTPUT_H

#include "config.h"

// What was executed since reset, and the accesses to devices.
struct totals {
    uint64_t early, kernel, user, ports, mmio;
};

// The same of the guest of a hypervisor within the machine, and how often it was entered. Above are the machine's own.
struct guest_totals {
    uint64_t early, kernel, user, entries;
};

struct owner_counts {
    uint64_t kernel, user;
};

// Create the file and write what the numbers in it stand for. Ends QEMU on failure, as do the others.
void output_open(const char *path, const struct config *config);

// The stretch that ends at a mark (or at the end, mark -1).
void output_stretch(int mark, const struct totals *now, const struct owner_counts *owners, unsigned owner_count,
                    const uint64_t *devices, unsigned device_count);

// What a guest has executed by the end of the stretch that was written last.
void output_guest(const struct guest_totals *now);

// `guest`: NULL where none is counted.
void output_span(unsigned span, const struct totals *now, const struct guest_totals *guest);

// The names of memory-mapped devices, and the end mark; closes the file.
void output_close(char *const *devices, unsigned device_count);

#endif
