/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VT_TUNING_H
#define VT_TUNING_H

#include <stdbool.h>

/* Whether VT_SET sets a file below this folder. */
bool tuning_asks(const char *below);

/* Writes the files below a folder that VT_SET sets; the machine ends with the reason where one cannot be set. */
void tuning_apply(const char *below);

#endif
