/* SPDX-License-Identifier: Apache-2.0 */
/* The exercise: wait until ready, let the machine come to rest, drive the load, stop. */
#ifndef VT_EXERCISE_H
#define VT_EXERCISE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

void exercise_start(void);
/* Do what is due; returns when to be called again at the latest (ns). */
uint64_t exercise_advance(void);
/* A process has ended: was it the exercise's? */
bool exercise_exit(pid_t pid, int status);
/* From the host: its part of the load is done; or (where nothing is asked in the guest, and the load is held) ready. */
void exercise_go(void);
/* The entry point ended. */
void exercise_entry_ended(int exit_code);

#endif
