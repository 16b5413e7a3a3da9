// SPDX-License-Identifier: GPL-2.0-or-later
/* A result file: a magic word, then chunks of little-endian records, each behind its tag, count and size. */
#ifndef VT_CHUNKS_H
#define VT_CHUNKS_H

#include "config.h"

#include <stddef.h>
#include <stdint.h>

#define MAGIC_BYTES 8

// Create the file; "fd:NUMBER" is one that a QEMU that may open nothing inherited. Ends QEMU on failure, as do the
// others.
void chunks_open(const char *path, const char magic[MAGIC_BYTES]);

// Begin a chunk; as many bytes as it says follow by `put`.
void put_chunk(const char *tag, uint32_t count, uint64_t bytes);
void put(const void *data, size_t size);

// A whole chunk of texts, each with its zero byte: any, or the names of a configuration's owners, marks or spans.
void put_texts(const char *tag, char *const *texts, unsigned count);
void put_owners(const struct config *config);
void put_points(const char *tag, const struct config *config, bool spans);

// The end mark; closes the file.
void chunks_close(void);

#endif
