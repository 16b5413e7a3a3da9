/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Samples of a machine, one after another, on standard output (docs/reference/watched-machines.md):
 *
 *   sample MONOTONIC_NS REALTIME_NS
 *   cpu|cpuN|kernel|load|memory|disk NAME|net NAME|container ID|named ID ENGINE COMMAND|note WORD, then numbers or "-"
 *   end
 *
 * Nothing grows: a machine that hosts more than there is room for is sampled as far as that goes.
 */
#ifndef VT_SAMPLE_H
#define VT_SAMPLE_H

/* Sample every so many milliseconds, on the beat of the machine's clock, until `count` (0: for ever), or until nobody
 * reads. Both as texts. Returns an exit status. */
int sample_until_end(const char *every_ms, const char *count);

#endif
