// SPDX-License-Identifier: Apache-2.0
// The control socket of a machine: who may speak to it, what is asked, and what goes on in the machine for who asked.
// Frames both ways: type | length (4, little endian) | payload.
#ifndef VT_SUPERVISE_CONTROL_H
#define VT_SUPERVISE_CONTROL_H

#include <poll.h>
#include <stdbool.h>

#include "supervise/run.h"

#define MOST_CLIENTS 48
#define CONTROL_POLLS (1 + 2 * MOST_CLIENTS)

// Listen in the folder of the orders, where there is one; ends the program with a word when it cannot.
void control_open(struct relay *relay);

// What to wait for; returns how many. Then look at what has come.
size_t control_polls(struct pollfd *polls);
void control_ready(struct relay *relay, const struct pollfd *polls, size_t count);

// Close the connections on which all is said.
void control_sweep(void);

// Pass on what the container says; is somebody behind who should read it?
void control_output(bool errors, const uint8_t *data, size_t length);
bool control_full(void);

// Is a client attached?
bool control_attached(void);

// Pass on words about the machine's end to those who are attached.
void control_words(const void *words, size_t length);

// A frame of the guest about a further process.
void control_session_frame(struct relay *relay, char type, const uint8_t *payload, size_t length);

// The machine has ended, and with it what went on in it. `final`: it is not started again.
void control_ended(int code, int signal, const char *why, bool final);

// Look after the health check; returns when to do so again, in ms of the monotonic clock.
void control_health(struct relay *relay);

// Send what is still to be sent, for a while, and remove the socket.
void control_close(const struct orders *orders);

#endif
