// SPDX-License-Identifier: Apache-2.0
// The end of a run: an exit status, or a record of what happened for a program that words it.
#ifndef VT_SUPERVISE_END_H
#define VT_SUPERVISE_END_H

#include "supervise/run.h"

// The status of a run that needs no words; -1: it needs them.
int end_status(const struct relay *relay);

// Become the program that words it, which finds the record at descriptor 3; without one, say that there is none.
_Noreturn void end_explain(const struct relay *relay);

// The same, in a program of its own; its words, at most so many bytes, go to `words` as well as to standard error.
// Returns its status.
int end_explained(const struct relay *relay, char *words, size_t size);

#endif
