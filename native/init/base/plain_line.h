/* SPDX-License-Identifier: Apache-2.0 */
/* The console of a machine that was started by something else than vmtailor (VT_CONSOLE=plain): it shows what the
 * container writes, and no frames. */
#ifndef VT_PLAIN_LINE_H
#define VT_PLAIN_LINE_H

#include <stdbool.h>
#include <stddef.h>

bool plain_line_asked(void);
/* The console that the kernel opened for us, as a descriptor of our own; its newlines begin a line of a terminal. */
int plain_line_open(void);
/* Write what a frame of this type tells a person; nothing where it tells only a program. */
void plain_line_say(int fd, char type, const void *payload, size_t length);

#endif
