/* SPDX-License-Identifier: Apache-2.0 */
/* Further processes in the container, several at once, each with streams or a terminal of its own on the wire. */
#ifndef VT_SESSION_H
#define VT_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A frame from the host, of any kind; those about no further process are left alone. */
void session_frame(char type, const uint8_t *payload, size_t length);
/* A process has ended: was it one of them? */
bool session_exit(pid_t pid, int status);
/* Do what is due; returns when to be called again at the latest (ns). */
uint64_t sessions_advance(void);
/* The container has ended: none is started any more. */
void sessions_close(void);
/* May they still bring output that the host has room for? */
bool sessions_open(void);
/* Tell the end of all that are left. */
void sessions_end(void);

#endif
