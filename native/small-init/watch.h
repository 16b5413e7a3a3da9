/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who watches a system with an init of its own: processes of ours that stay behind in the initial RAM disk, where
 * nothing of the system finds them, and whose names begin with @, which systemd spares to the end.
 *
 *   /watch/disk        the disk that gets the log, such as /dev/vdb
 *   /watch/strace      the tracer, with /watch/ld.so and /watch/lib; without it only devices and modules are noted
 *   /watch/options     its options, one a line
 *
 * The log is the tracer's lines, and between them ours: "+++ vmtailor KIND … +++" (docs/reference/system-trace.md).
 */
#ifndef SMALL_INIT_WATCH_H
#define SMALL_INIT_WATCH_H

#include <stdbool.h>

#define WATCH "/watch"
#define WATCH_FIFO "/watch/log"
#define WATCH_DISK 3            /* the descriptor of the log's disk */
#define WATCH_LOG "--log"       /* what tells the small init's second start to keep the log */
#define WATCH_BECOME "--become" /* and its third to become the root's init */

bool watch_is_wanted(void);

/* In what becomes the root's init: take back what was put into the tracer's environment. */
void watch_leave(void);

/* Start what watches. With a tracer this does not return: it starts this program again, traced, to become init. */
void watch_start(char **argv);

#endif
