/* SPDX-License-Identifier: Apache-2.0 */
/* Pseudo-terminals of processes in the container. */
#ifndef VT_TERMINAL_H
#define VT_TERMINAL_H

#define TERMINAL_PATH 32

/* Open a fresh one. Returns our end, which does not block, and the container's with its path; -1 and errno, with the
 * path that could not be opened. */
int terminal_open(int rows, int cols, int *slave, char path[TERMINAL_PATH]);
/* Give it the size of a text "ROWS COLS". */
void terminal_resize(int master, const char *size);

#endif
