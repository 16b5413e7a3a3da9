/* SPDX-License-Identifier: Apache-2.0 */
/* The entry point: its start, its standard streams on the wire, its end. */
#ifndef VT_ENTRY_POINT_H
#define VT_ENTRY_POINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

void entry_start(void);
/* A process has ended: was it the entry point? */
bool entry_exit(pid_t pid, int status);
bool entry_ended(int *exit_code, int *by_signal, const char **why);
void entry_signal(int number);
/* May a signal have an effect? It has none on PID 1 of a namespace that neither handles it nor waits for it. */
bool entry_heeds(int number);
/* From the host: standard input, its end, the terminal's new size ("ROWS COLS"). */
void entry_stdin(const uint8_t *data, size_t length);
void entry_stdin_end(void);
/* The host has taken output: there may be room for more. */
void entry_output_go(void);
void entry_window(const char *size);
/* Are there streams that may still bring output? */
bool entry_streams_open(void);
/* Do they wait for the host? */
bool entry_streams_wait(void);

#endif
