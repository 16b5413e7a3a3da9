// SPDX-License-Identifier: Apache-2.0
#include "supervise/guest.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Bytes of standard input that may be under way, and of one frame of it: a serial line has no other flow control, and
// on a port signals must not wait behind a stream that nobody takes.
#define WINDOW 2048
#define PART 1024
#define PORT_WINDOW (128 << 10)
#define TAKEN_STEP (64 << 10) // bytes of output after which a guest on a port is told that they were taken
#define MOST_CONSOLE 262144   // the console's last bytes, which are kept
#define MOST_LOG (1 << 20)    // of the kernel's log
#define MOST_NOTES 256
#define MOST_SPEECH (1 << 20) // a guest that does not listen is not told more
#define MOST_TOLD (64u << 20)

// The last words of a kernel that was asked to end, which it prints at any console level.
static const char *const farewells[] = {"reboot: System halted",
                                        "reboot: System halted instead",
                                        "reboot: Power off not available: System halted",
                                        "reboot: Power off not available: System halted instead",
                                        "reboot: Power down",
                                        "reboot: Restarting system"};

static void send_speech(struct guest *guest);

static char *text_of(const uint8_t *data, size_t length) {
    char *text = malloc(length + 1);
    if (!text)
        return NULL;
    for (size_t i = 0; i < length; i++)
        text[i] = data[i] ? (char)data[i] : ' ';
    text[length] = '\0';
    return text;
}

// "[    1.234567] " and the like, at most twice.
static const char *past_stamps(const char *line) {
    for (int i = 0; i < 2 && line[0] == '['; i++) {
        size_t length = strcspn(line, "]");
        if (length < 2 || length > 25 || line[length] != ']')
            break;
        line += length + 1;
        line += *line == ' ';
    }
    return line;
}

static void end_line(struct guest *guest) {
    if (guest->last_length >= sizeof(guest->last_line))
        return;
    if (guest->last_length > 0 && guest->last_line[guest->last_length - 1] == '\r')
        guest->last_length--;
    guest->last_line[guest->last_length] = '\0';
    const char *said = past_stamps(guest->last_line);
    for (size_t i = 0; i < sizeof(farewells) / sizeof(*farewells); i++)
        if (!strcmp(said, farewells[i]))
            guest->farewell = farewells[i];
}

static void on_text(void *context, const uint8_t *data, size_t length) {
    struct guest *guest = context;
    bytes_add_tail(&guest->kernel_said, data, length, MOST_CONSOLE);
    for (size_t i = 0; i < length; i++)
        if (data[i] == '\n') {
            end_line(guest);
            guest->last_length = 0;
        } else if (guest->last_length < sizeof(guest->last_line)) {
            guest->last_line[guest->last_length++] = (char)data[i];
        }
}

// SYMBOL NUL TEXT
static void on_note(struct guest *guest, const uint8_t *payload, size_t length) {
    char *text = guest->notes.count < MOST_NOTES ? text_of(payload, length) : NULL;
    if (text && !memchr(payload, '\0', length)) // without a symbol
        free(text);
    else if (text && !list_add(&guest->notes, text))
        free(text);
}

static void on_fatal(struct guest *guest, const uint8_t *payload, size_t length) {
    const uint8_t *end = memchr(payload, '\0', length);
    size_t symbol = end ? (size_t)(end - payload) : 0, before = end ? symbol + 1 : 0;
    if (guest->given_up)
        return;
    guest->given_up = true;
    guest->fatal_symbol = text_of(payload, symbol);
    guest->fatal = text_of(payload + before, length - before);
}

// A number at `*from`, at most nine digits of it, and the blank behind it.
static int number(const uint8_t **from, const uint8_t *end, int otherwise) {
    const uint8_t *at = *from;
    bool minus = at < end && *at == '-';
    int value = 0, digits = 0;
    for (at += minus; at < end && *at >= '0' && *at <= '9' && digits < 9; at++, digits++)
        value = 10 * value + (*at - '0');
    bool ends = digits > 0 && (at == end || *at == ' ');
    while (at < end && *at != ' ')
        at++;
    *from = at + (at < end);
    return !ends ? otherwise : minus ? -value : value;
}

// STATUS SIGNAL WHY
static void on_exit_frame(struct guest *guest, const uint8_t *payload, size_t length) {
    const uint8_t *at = payload, *end = payload + length;
    guest->exited = true;
    guest->status = number(&at, end, 255) & 255;
    guest->signal = number(&at, end, 0);
    free(guest->reason);
    while (at < end && *at == ' ')
        at++;
    while (end > at && (end[-1] == '\n' || end[-1] == ' ' || !end[-1]))
        end--;
    guest->reason = text_of(at, (size_t)(end - at));
    guest->begun |= end == at;
}

static void fill(struct guest *guest) {
    while (guest->listening && guest->credit > 0 && bytes_left(&guest->input) > 0) {
        size_t part = bytes_left(&guest->input);
        size_t most = guest->on_port ? WIRE_BLOCK : PART;
        part = part > most ? most : part;
        part = part > (size_t)guest->credit ? (size_t)guest->credit : part;
        guest_frame(guest, WIRE_STDIN, bytes_first(&guest->input), part);
        guest->credit -= (int)part;
        bytes_drop(&guest->input, part);
    }
    if (guest->listening && guest->input_ends && bytes_left(&guest->input) == 0) {
        guest->input_ends = false;
        guest_frame(guest, WIRE_STDIN_END, NULL, 0);
    }
}

// NAME NUL PART
static void on_file(struct guest *guest, const uint8_t *payload, size_t length) {
    const uint8_t *end = memchr(payload, '\0', length);
    size_t name = end ? (size_t)(end - payload) : length;
    if (!end)
        return;
    const uint8_t *part = end + 1;
    length -= name + 1;
    if (name == 10 && !memcmp(payload, "kernel-log", 10))
        bytes_add_head(&guest->kernel_log, part, length, MOST_LOG);
    else if (guest->told && name == 7 && !memcmp(payload, "refused", 7) && guest->told_bytes + length <= MOST_TOLD)
        guest->told_bytes += write(guest->told, part, length) == (ssize_t)length ? length : 0;
}

// A mark is NAME and times; one frame may hold some.
static bool has_begun(const uint8_t *marks, size_t length) {
    return memmem(marks, length, "entry ", 6) != NULL;
}

static void on_frame(void *context, char type, const uint8_t *payload, size_t length) {
    struct guest *guest = context;
    const uint8_t *at = payload;
    switch (type) {
    case WIRE_STDOUT:
    case WIRE_STDERR:
        guest->begun = true;
        guest->output(type == WIRE_STDERR, payload, length);
        guest->taken += guest->on_port ? length : 0;
        if (guest->taken >= TAKEN_STEP) {
            char text[24];
            guest_frame(guest, WIRE_TAKEN, text, (size_t)snprintf(text, sizeof(text), "%zu", guest->taken));
            guest->taken = 0;
        }
        break;
    case WIRE_BYE:
        if (guest->on_port)
            guest_frame(guest, WIRE_HEARD, NULL, 0);
        break;
    case WIRE_HELLO:
        if (length >= 4 && !memcmp(payload, "init", 4)) {
            guest->listening = true;
            fill(guest);
            guest_write(guest);
        }
        break;
    case WIRE_MARK:
        guest->begun |= has_begun(payload, length);
        break;
    case WIRE_NOTE:
        on_note(guest, payload, length);
        break;
    case WIRE_FATAL:
        on_fatal(guest, payload, length);
        break;
    case WIRE_EXIT:
        on_exit_frame(guest, payload, length);
        break;
    case WIRE_FILE:
        on_file(guest, payload, length);
        break;
    case 'o':
    case 'p':
    case 'y':
    case 'c':
        guest->further(type, payload, length);
        break;
    case WIRE_CREDIT:
        if (length < 8) {
            int more = number(&at, payload + length, 0), most = (int)guest_window_bytes(guest);
            guest->credit = more < 0 ? guest->credit : guest->credit + more > most ? most : guest->credit + more;
            fill(guest);
        }
        break;
    }
}

size_t guest_window_bytes(const struct guest *guest) {
    return guest->on_port ? PORT_WINDOW : WINDOW;
}

void guest_start(struct guest *guest, const uint8_t key[WIRE_KEY], int in, int out, int console) {
    struct guest before = *guest;
    if (!before.listening) // what was said before the machine was there, or when it never came up
        guest->input = (struct bytes){0};
    guest_free(guest);
    *guest = (struct guest){.in = in,
                            .out = out,
                            .output = before.output,
                            .further = before.further,
                            .told = before.told,
                            .console = console,
                            .on_port = console >= 0,
                            .port = before.port,
                            .open = true};
    if (!before.listening) {
        guest->input = before.input;
        guest->input_ends = before.input_ends;
    }
    guest->credit = (int)guest_window_bytes(guest);
    guest->hearing = (struct hearing){.frame = on_frame, .text = on_text, .context = guest};
    memcpy(guest->hearing.key, key, WIRE_KEY);
    if (!guest->on_port)
        return;
    if (!guest->port)
        guest->port = malloc(sizeof(*guest->port));
    if (!guest->port)
        exit(71);
    *guest->port = (struct port_hearing){.frame = on_frame, .context = guest};
    memcpy(guest->port->key, key, WIRE_KEY);
    // Which port is the host's: init tries those that there are. It fits into a line that is new.
    guest_frame(guest, WIRE_GREETING, NULL, 0);
    send_speech(guest);
}

// Returns how many bytes have come; 0 when the line has closed, -1: none now.
static ssize_t take(int fd, uint8_t *data, size_t size) {
    ssize_t length = read(fd, data, size);
    if (length < 0)
        return errno == EAGAIN || errno == EINTR ? -1 : 0;
    return length;
}

static uint8_t incoming[65536];

void guest_hear(struct guest *guest) {
    ssize_t length = take(guest->in, incoming, sizeof(incoming));
    if (length > 0) {
        guest->heard = true;
        if (guest->on_port)
            hear_port(guest->port, incoming, (size_t)length);
        else
            hear(&guest->hearing, incoming, (size_t)length);
    } else if (length == 0) {
        guest->in = -1;
        guest->open = guest->console >= 0;
        if (!guest->on_port)
            hear_end(&guest->hearing);
    }
}

void guest_hear_console(struct guest *guest) {
    ssize_t length = take(guest->console, incoming, sizeof(incoming));
    if (length > 0) {
        guest->heard = true;
        hear(&guest->hearing, incoming, (size_t)length);
    } else if (length == 0) {
        guest->console = -1;
        guest->open = guest->in >= 0;
        hear_end(&guest->hearing);
    }
}

bool guest_ended(const struct guest *guest) {
    return guest->exited || guest->given_up;
}

bool guest_wants_write(const struct guest *guest) {
    return guest->open && guest->listening && bytes_left(&guest->speech) > 0;
}

static void send_speech(struct guest *guest) {
    while (bytes_left(&guest->speech) > 0) {
        ssize_t written = write(guest->out, bytes_first(&guest->speech), bytes_left(&guest->speech));
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0 && errno != EAGAIN)
            bytes_free(&guest->speech); // the guest is gone; who hears it will know
        if (written < 0)
            return;
        bytes_drop(&guest->speech, (size_t)written);
    }
}

void guest_write(struct guest *guest) {
    if (guest_wants_write(guest))
        send_speech(guest);
}

void guest_frame(struct guest *guest, char type, const void *payload, size_t length) {
    uint8_t frame[WIRE_HEADER + WIRE_PAYLOAD];
    if (bytes_left(&guest->speech) > MOST_SPEECH || !guest->open)
        return;
    if (guest->on_port) {
        bytes_add(&guest->speech, frame, wire_port_head(frame, guest->hearing.key, type, guest->sequence++, length));
        bytes_add(&guest->speech, payload, length);
    } else {
        bytes_add(&guest->speech, frame,
                  wire_encode(frame, guest->hearing.key, type, guest->sequence++, payload, length));
    }
    guest_write(guest);
}

void guest_input(struct guest *guest, const void *data, size_t length) {
    bytes_add(&guest->input, data, length);
    fill(guest);
}

void guest_input_end(struct guest *guest) {
    guest->input_ends = true;
    fill(guest);
}

void guest_signal(struct guest *guest, int number) {
    char text[16];
    guest_frame(guest, WIRE_SIGNAL, text, (size_t)snprintf(text, sizeof(text), "%d", number));
}

void guest_window(struct guest *guest, int rows, int columns) {
    char text[32];
    guest_frame(guest, WIRE_WINDOW, text, (size_t)snprintf(text, sizeof(text), "%d %d", rows, columns));
}

void guest_free(struct guest *guest) {
    for (size_t i = 0; i < guest->notes.count; i++)
        free(guest->notes.items[i]);
    free(guest->notes.items);
    free(guest->reason);
    free(guest->fatal_symbol);
    free(guest->fatal);
    struct bytes *kept[] = {&guest->kernel_said, &guest->kernel_log, &guest->speech, &guest->input};
    for (size_t i = 0; i < sizeof(kept) / sizeof(*kept); i++)
        bytes_free(kept[i]);
}
