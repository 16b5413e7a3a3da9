/* SPDX-License-Identifier: Apache-2.0 */
/* Who this machine is: its name, and the files that say so. */
#ifndef VT_HOSTNAME_H
#define VT_HOSTNAME_H

void hostname_set(void);

#endif
