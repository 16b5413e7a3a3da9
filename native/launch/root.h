// SPDX-License-Identifier: Apache-2.0
// An empty root directory with what is named put into it.
#ifndef VT_LAUNCH_ROOT_H
#define VT_LAUNCH_ROOT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define MAX_ITEMS 128

enum kind { SHOW, DEVICE, PLACE, COPY, FOLDER, FILE_ALONE };

struct item {
    enum kind kind;
    const char *source; // a path of the old root, or the number of a descriptor
    const char *path;   // in the new root
    int opened;
    bool read_only; // of what is shared: FOLDER, FILE_ALONE
};

struct root {
    bool wanted, user;
    void (*map)(void); // gives the new user namespace its users; NULL: the starter's alone, under its own number
    size_t count;
    struct item items[MAX_ITEMS];
};

// Make it, and make it the process's root and working directory. `owner` and `group` get what is for writing.
void root_make(struct root *root, uid_t owner, gid_t group);

#endif
