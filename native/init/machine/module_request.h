/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel asks of its modprobe, which we are. */
#ifndef VT_MODULE_REQUEST_H
#define VT_MODULE_REQUEST_H

/* Note in the kernel's log who asked for what; the exit status. */
int note_module_request(const char *name);

#endif
