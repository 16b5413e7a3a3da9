/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers from a seed (SplitMix64): the same ones in every run. */
#ifndef VT_RANDOM_H
#define VT_RANDOM_H

#include <stdint.h>

uint64_t random_next(uint64_t *state);
/* From 0 to just below 1. */
double random_share(uint64_t *state);

#endif
