/* SPDX-License-Identifier: Apache-2.0 */
/* Volumes of the device mapper, made by a word of the kernel's command line. */
#ifndef SMALL_INIT_MAPPED_H
#define SMALL_INIT_MAPPED_H

/* Make the volume that `dm-mod.create="NAME,UUID,MINOR,FLAGS,START SIZE linear DEVICE OFFSET[,…]"` describes, as a
 * kernel with DM_INIT does by itself; nothing where the word is not there, or the kernel has done it. */
void map_volume(const char *command_line);

#endif
