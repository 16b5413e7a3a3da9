/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts of durations, each in the bucket that holds it. Buckets are as wide as 1/128 of their values, so what is read
 * from them is right to 0.8 %; the counts are exact. Smallest, largest and sum are kept as they were.
 */
#ifndef VT_HISTOGRAM_H
#define VT_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_BITS 7  /* 2^7 buckets for each doubling */
#define HISTOGRAM_MOST 44 /* durations from 2^44 ns on, five hours, are in the last bucket */
#define HISTOGRAM_BUCKETS ((HISTOGRAM_MOST - HISTOGRAM_BITS + 1) << HISTOGRAM_BITS)

struct histogram {
    uint64_t count, sum, smallest, largest;
    uint32_t buckets[HISTOGRAM_BUCKETS];
};

void histogram_start(struct histogram *histogram);
void histogram_add(struct histogram *histogram, uint64_t ns);
/* The bucket of a duration, and the smallest duration in a bucket. */
unsigned histogram_bucket(uint64_t ns);
uint64_t histogram_from(unsigned bucket);

#endif
