/* SPDX-License-Identifier: Apache-2.0 */
/* A load: many requests, some of them at the same time, and what became of them. */
#ifndef VT_LOAD_H
#define VT_LOAD_H

/* Drive a load that is given as words. Writes its record to standard output, a NUL, and a verdict as items; the status
 * to end with: 0 all was right, 1 not, 2 it could not be driven. */
int load_run(int count, char **words);

#endif
