/* SPDX-License-Identifier: Apache-2.0 */
/* What the container writes, on a disk of its own that outlives the machine. */
#ifndef VT_LAYER_H
#define VT_LAYER_H

/* Mount the layer's disk on the folder of what is written, where the run has one. While / is still the root's disk. */
void layer_mount(const char *folder);

/* Make one of its folders, unless a machine before has made it. */
void layer_folder(const char *path);

#endif
