/* SPDX-License-Identifier: Apache-2.0 */
/* Folders with all that is in them. Nothing is followed, and no other file system entered. */
#ifndef VT_COPY_TREE_H
#define VT_COPY_TREE_H

#include <stdbool.h>

/* Copy what is in a folder into another that is there, and give it the first one's owner, mode and times. A folder that
 * is not there is an empty one. False and errno when something cannot be copied. */
bool copy_tree(const char *from, const char *to);
/* Remove a folder and all that is in it, as far as that can be. */
void remove_tree(const char *path);

#endif
