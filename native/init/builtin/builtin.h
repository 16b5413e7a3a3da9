/* SPDX-License-Identifier: Apache-2.0 */
/* Programs of our own in the container, which need nothing of its image: init runs itself again as one of them. */
#ifndef VT_BUILTIN_H
#define VT_BUILTIN_H

/* `init --further NAME PATH FOLLOW`. Returns the exit status; what is wrong goes to standard error. */
int builtin(int argc, char **argv);

#endif
