/* SPDX-License-Identifier: Apache-2.0 */
/* What the user mounts into the container: folders and files of the host, volumes, memory. */
#ifndef VT_MOUNTS_H
#define VT_MOUNTS_H

/* Mount them all, in their order. One that cannot be had is fatal: the container would write elsewhere. */
void mounts_make(void);
/* Take volumes off, so that they are whole; called when nothing of the container runs any more. */
void mounts_end(void);

#endif
