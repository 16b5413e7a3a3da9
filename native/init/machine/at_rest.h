/* SPDX-License-Identifier: Apache-2.0 */
/* Has the machine come to rest? */
#ifndef VT_AT_REST_H
#define VT_AT_REST_H

#include <stdbool.h>

/* Does nothing run but this process? True, too, where the kernel does not tell. */
bool at_rest(void);

#endif
