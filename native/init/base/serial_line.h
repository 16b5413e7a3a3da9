/* SPDX-License-Identifier: Apache-2.0 */
/* The line to the host: everything we say to it is a frame on it. It is the serial line, or a virtio port. */
#ifndef VT_SERIAL_LINE_H
#define VT_SERIAL_LINE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/wire.h"
#include "init/base/marks.h"

void line_open(void);
/* Another line than the console's. */
void line_take(int fd);
/* From now on a virtio port is the line; the serial line stays ours, and silent. */
void line_take_port(int fd);
/* Is the line a port, which carries streams in blocks? */
bool line_is_port(void);
/* On a port: the host has taken so many bytes of the container's output. */
void line_taken(size_t bytes);
/* Is as much output under way as may be? Never on a serial line, where who writes waits. */
bool line_is_full(void);
/* Frames are tagged with this key from now on. */
void line_key(const uint8_t key[WIRE_KEY]);
int line_fd(void);
/* From now on notes and marks wait for a frame that cannot wait, or a tenth of a second: they go out with it,
 * in one write. What the container says does not wait, and goes first. */
void line_hold(void);
/* Send what waits now. */
void line_flush(void);
/* Send what has waited long enough; returns when something will have (UINT64_MAX: nothing waits). */
uint64_t line_advance(void);
void line_send(char type, const void *payload, size_t length);
void line_text(char type, const char *format, ...) __attribute__((format(printf, 2, 3)));
void line_mark(const char *name, struct stamp stamp);
/* A thing that is missing and was not demanded. `symbol`: what kernel configuration would bring it, or "". */
void line_note(const char *symbol, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The boot cannot go on, for this reason; see fatal(), which also ends the machine. */
void line_fatal(const char *symbol, const char *format, va_list args);
/* A file, by name, in as many frames as it takes. */
void line_file(const char *name, const void *data, size_t length);
/* Send the kernel's log, and wait until all is on its way; on a port, the host says that. */
void line_drain(void);

#endif
