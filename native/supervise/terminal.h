// SPDX-License-Identifier: Apache-2.0
// The caller's terminal: its size, and its raw mode. It may vanish at any time, which is no error here.
#ifndef VT_SUPERVISE_TERMINAL_H
#define VT_SUPERVISE_TERMINAL_H

#include <stdbool.h>

// Rows and columns of the terminal at a standard stream; 24 and 80 where there is none.
void terminal_size(int *rows, int *columns);

// Make the terminal at standard input raw: at first, and after a shell that had stopped us had it.
void terminal_raw(void);

// Put its mode back.
void terminal_restore(void);

#endif
