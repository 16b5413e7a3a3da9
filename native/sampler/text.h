/* SPDX-License-Identifier: Apache-2.0 */
/* What a sample is written into, and what it is read from: two buffers that never grow. */
#ifndef VT_SAMPLER_TEXT_H
#define VT_SAMPLER_TEXT_H

#include <stdbool.h>
#include <stdint.h>

/* Begin a sample. */
void out_start(void);
/* Add to the sample; a line that has no room is left out, and those behind it. */
void out_line(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Add a number behind a blank, or "-" where it is not known (UNKNOWN). */
#define UNKNOWN UINT64_MAX
void out_number(uint64_t value);
/* Write the sample to standard output. False when nobody reads it. */
bool out_write(void);

/* The text of a file that is read again and again, until the next call; NULL when there is none. `*fd` is -1 before the
 * first call, and kept open. */
char *file_again(int *fd, int folder, const char *path);
/* The same of a file that is read once. */
char *file_once(int folder, const char *path);

/* Go past blanks and one number; false at anything else. */
bool next_number(char **at, uint64_t *value);
/* The number behind `key` and a blank at the start of a line, UNKNOWN where there is none. */
uint64_t number_of(const char *text, const char *key);
/* Letters, digits and the marks of names stay; anything else becomes '?'. Cut at `most`. */
void plain_name(char *to, unsigned most, const char *from);

#endif
