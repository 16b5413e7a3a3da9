// SPDX-License-Identifier: Apache-2.0
// Signals as something to read: they interrupt nothing.
#ifndef VT_SUPERVISE_CAUGHT_H
#define VT_SUPERVISE_CAUGHT_H

#include <stdbool.h>

// Catch those that ask for an end, and those that are passed on; returns the descriptor to read from. A SIGHUP that is
// ignored stays so: that is how `nohup` starts a program.
int caught_start(void);

// The next signal, without waiting; 0: none.
int caught_next(int fd);

// Does a signal ask for the end?
bool caught_stops(int number);

// Let them do what they did before.
void caught_end(int fd);

#endif
