/* SPDX-License-Identifier: Apache-2.0 */
/* The root file system: what is read-only on the disk becomes writable in memory; then the mounts a container expects.
 */
#ifndef VT_ROOT_H
#define VT_ROOT_H

#include <stdbool.h>

/* Of a file, where the machine was told so; before the line to the host is opened. */
void root_from_file(void);
void root_scratch(void);
void root_writable(void);
void root_mounts(void);
/* What root could change the machine by, read-only, unless it may do everything. */
void root_proc_read_only(void);
/* In the first process of a PID namespace: /proc that shows it. False and errno when it cannot be. */
bool root_proc_of_namespace(void);
/* The third disk: programs we bring along (a tracer), never part of the container. */
void tools_mount(void);

#endif
