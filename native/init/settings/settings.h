/* SPDX-License-Identifier: Apache-2.0 */
/* What init was told, for all of it to read. */
#ifndef VT_SETTINGS_H
#define VT_SETTINGS_H

#include "common/records.h"

extern struct settings settings;

/* Read it: from the image (/.vmtailor/config), from the run volume, from the kernel's command line. */
void settings_load(void);

#endif
