/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 (FIPS 180-4): tags frames on the wire and names answers of the exercise. */
#ifndef VT_SHA256_H
#define VT_SHA256_H

#include <stddef.h>
#include <stdint.h>

struct sha256 {
    uint32_t state[8];
    uint64_t length; /* bytes so far */
    uint8_t block[64];
};

void sha256_start(struct sha256 *hash);
void sha256_add(struct sha256 *hash, const void *data, size_t length);
void sha256_end(struct sha256 *hash, uint8_t digest[32]);
void sha256_hex(const uint8_t digest[32], char text[65]);

#endif
