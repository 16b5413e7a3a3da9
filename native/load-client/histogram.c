/* SPDX-License-Identifier: Apache-2.0 */
#include "load-client/histogram.h"

#include <string.h>

void histogram_start(struct histogram *histogram) {
    memset(histogram, 0, sizeof *histogram);
    histogram->smallest = UINT64_MAX;
}

unsigned histogram_bucket(uint64_t ns) {
    if (ns >= UINT64_C(1) << HISTOGRAM_MOST)
        return HISTOGRAM_BUCKETS - 1;
    unsigned shift = ns < 2u << HISTOGRAM_BITS ? 0 : 63u - (unsigned)__builtin_clzll(ns) - HISTOGRAM_BITS;
    return (shift << HISTOGRAM_BITS) + (unsigned)(ns >> shift);
}

uint64_t histogram_from(unsigned bucket) {
    unsigned shift = bucket < 2u << HISTOGRAM_BITS ? 0 : (bucket >> HISTOGRAM_BITS) - 1;
    return (uint64_t)(bucket - (shift << HISTOGRAM_BITS)) << shift;
}

void histogram_add(struct histogram *histogram, uint64_t ns) {
    histogram->count++;
    histogram->sum += ns;
    histogram->smallest = ns < histogram->smallest ? ns : histogram->smallest;
    histogram->largest = ns > histogram->largest ? ns : histogram->largest;
    histogram->buckets[histogram_bucket(ns)]++;
}
