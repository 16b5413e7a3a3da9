/* SPDX-License-Identifier: Apache-2.0 */
/* What devices a machine has, by the names that modules are asked for by, and where its modules lie. */
#ifndef SMALL_INIT_SEEN_H
#define SMALL_INIT_SEEN_H

#include <stdbool.h>

/* Mount what is looked at; false where the kernel has no sysfs. */
bool seen_open(void);

/* Say each device and module that was not there before. */
void seen_look(void);

/* Given by the log: one line of it. */
void seen_say(const char *kind, const char *one, const char *two);

#endif
