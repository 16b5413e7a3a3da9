/* SPDX-License-Identifier: Apache-2.0 */
/* What devices a machine has, by the names that modules are asked for by, and where its modules lie. */
#ifndef SMALL_INIT_SEEN_H
#define SMALL_INIT_SEEN_H

#include <stdbool.h>

/* Gets a line of the log: of what kind, and what it says. */
typedef void seen_sink(const char *kind, const char *one, const char *two);

/* Mount what is looked at, which is said to `sink` from now on; false where the kernel has no sysfs. */
bool seen_open(seen_sink *sink);

/* Say each device and module that was not there before. */
void seen_look(void);

#endif
