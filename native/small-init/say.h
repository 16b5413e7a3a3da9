/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the small init share: words on the console, and small files read whole. */
#ifndef SMALL_INIT_SAY_H
#define SMALL_INIT_SAY_H

#include <stddef.h>

/* Say on the console what is odd, and go on. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Say on the console why nothing goes on, and end; PID 1 that ends is a panic, which is seen. */
_Noreturn void fatal(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The text of a small file; empty where it cannot be read. */
void read_text(const char *path, char *to, size_t size);

#endif
