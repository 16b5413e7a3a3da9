/* SPDX-License-Identifier: Apache-2.0 */
/* Where the machine's memory is. */
#ifndef VT_MEMORY_H
#define VT_MEMORY_H

/* Send the host the kernel's own account of its memory, as the file `memory`. */
void memory_account(void);

#endif
