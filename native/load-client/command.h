/* SPDX-License-Identifier: Apache-2.0 */
/* A request that is a command in the container: a process for each, judged by its exit status and what it prints. */
#ifndef VT_COMMAND_H
#define VT_COMMAND_H

#include "load-client/connection.h"

/* Find the commands' programs, and open what all of them share. Returns false when there is no memory or descriptor. */
bool command_prepare(struct plan *plan);
/* A descriptor of what commands say on their standard error, to be read when there is something. */
int command_errors(void);
void command_take_errors(void);
/* Start the process of a request; its output can be waited for then. Without a process, the request is DONE. */
void command_start(struct connection *connection, int poller, char why[200]);
/* Read output as far as it has come. */
void command_read(struct connection *connection);
/* The next request whose process has ended, judged, among `count` connections; NULL where none has. */
struct connection *command_next_end(struct connection *connections, unsigned count, char why[200]);
/* Signals while waiting: the end of a process is one. */
const sigset_t *command_signals(void);

#endif
