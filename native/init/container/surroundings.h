/* SPDX-License-Identifier: Apache-2.0 */
/* What a run asks for besides what engines always do: memory file systems, a read-only root. */
#ifndef VT_SURROUNDINGS_H
#define VT_SURROUNDINGS_H

/* Each does nothing where the run asks for nothing, and ends the machine where it cannot have what it asks for. */

/* Before anything is written into the root. */
void surroundings_tmpfs(void);
/* Once everything is written there. The image's volumes stay writable. */
void surroundings_read_only(void);

#endif
