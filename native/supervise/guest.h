// SPDX-License-Identifier: Apache-2.0
// The conversation with the init of one machine, on its line.
#ifndef VT_SUPERVISE_GUEST_H
#define VT_SUPERVISE_GUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "common/records.h"
#include "supervise/bytes.h"
#include "supervise/hear.h"

struct guest {
    int in, out, console; // our ends of the line; console: of the kernel's own, beside a virtio port, else -1
    bool on_port;
    struct hearing hearing;    // of the serial line
    struct port_hearing *port; // of the virtio port
    size_t taken;              // bytes of output on a port that the guest was not told of
    void (*output)(bool errors, const uint8_t *data, size_t length);
    void (*further)(char type, const uint8_t *payload, size_t length); // of a further process
    int told; // takes the file of refused calls; 0: nobody asks
    uint64_t told_bytes;

    bool open, heard, listening; // listening: init has said that it is there
    bool begun;                  // the container's program is executed
    bool exited, given_up;
    int status, signal;
    char *reason;               // why it could not be executed
    char *fatal_symbol, *fatal; // why init gave up
    struct list notes;          // "SYMBOL TEXT"
    struct bytes kernel_said, kernel_log;
    const char *farewell; // what a kernel said last that was made to halt, power off or start again
    char last_line[160];
    size_t last_length;

    uint8_t sequence;
    struct bytes speech, input; // frames on their way; standard input that waits for credit
    bool input_ends;
    int credit;
};

// Begin a conversation. `console`: -1, or where the kernel's console comes; then the line is a virtio port.
void guest_start(struct guest *guest, const uint8_t key[WIRE_KEY], int in, int out, int console);

// Read what has come on the line, or on the console, and deal with it; `open` ends with both.
void guest_hear(struct guest *guest);
void guest_hear_console(struct guest *guest);

// Bytes of standard input that may be under way.
size_t guest_window_bytes(const struct guest *guest);

// Has the container ended, or init given up?
bool guest_ended(const struct guest *guest);

// Does something wait to be sent, that may be sent?
bool guest_wants_write(const struct guest *guest);
void guest_write(struct guest *guest);

// Queue standard input; it goes out as fast as the container takes it.
void guest_input(struct guest *guest, const void *data, size_t length);
void guest_input_end(struct guest *guest);

void guest_signal(struct guest *guest, int number);
void guest_window(struct guest *guest, int rows, int columns);
void guest_frame(struct guest *guest, char type, const void *payload, size_t length);

// Give everything back.
void guest_free(struct guest *guest);

#endif
