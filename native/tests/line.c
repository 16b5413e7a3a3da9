/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs init's serial line under the sanitizers, with a played clock. Orders from standard input, a word and a text
 * each; what is written to the line goes to standard output as HEX, one write a line.
 *
 *     port | hold | flush | wait MS | hello TEXT | note TEXT | mark NAME | out TEXT | result TEXT | file LENGTH | back
 * NAME | flood LENGTH | taken LENGTH | full
 */
#include "init/base/serial_line.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS 1000000u

static uint64_t now = 1000 * MS;

uint64_t now_ns(void) {
    return now;
}

ssize_t __wrap_write(int fd, const void *data, size_t length);

ssize_t __wrap_write(int fd, const void *data, size_t length) {
    const uint8_t *bytes = data;
    (void)fd;
    for (size_t i = 0; i < length; i++)
        printf("%02x", bytes[i]);
    printf(length > 0 ? "\n" : "");
    return (ssize_t)length;
}

static void do_as_told(const char *word, const char *text) {
    struct stamp stamp = {3 * now, now, now + 1767225600000000000u};
    static char data[100000];
    if (strcmp(word, "port") == 0)
        line_take_port(1);
    else if (strcmp(word, "flood") == 0)
        line_send(WIRE_STDOUT, data, strtoul(text, NULL, 10));
    else if (strcmp(word, "taken") == 0)
        line_taken(strtoul(text, NULL, 10));
    else if (strcmp(word, "full") == 0)
        printf(line_is_full() ? "full\n" : "room\n");
    else if (strcmp(word, "hold") == 0)
        line_hold();
    else if (strcmp(word, "flush") == 0)
        line_flush();
    else if (strcmp(word, "wait") == 0) {
        uint64_t end = now + strtoull(text, NULL, 10) * MS;
        for (uint64_t due; (due = line_advance()) <= end;)
            now = due;
        now = end;
    } else if (strcmp(word, "hello") == 0)
        line_text(WIRE_HELLO, "%s", text);
    else if (strcmp(word, "note") == 0)
        line_note("", "%s", text);
    else if (strcmp(word, "mark") == 0)
        line_mark(text, stamp);
    else if (strcmp(word, "back") == 0) /* somebody sets the clock */
        line_mark(text, (struct stamp){3 * now, now, 5});
    else if (strcmp(word, "out") == 0)
        line_send(WIRE_STDOUT, text, strlen(text));
    else if (strcmp(word, "result") == 0)
        line_send(WIRE_RESULT, text, strlen(text));
    else if (strcmp(word, "file") == 0)
        line_file("f", data, strtoul(text, NULL, 10));
    else
        abort();
}

int main(void) {
    char *line = NULL;
    size_t room = 0;
    for (ssize_t length; (length = getline(&line, &room, stdin)) > 0;) {
        line[strcspn(line, "\n")] = '\0';
        char *text = strchr(line, ' ');
        if (text != NULL)
            *text++ = '\0';
        do_as_told(line, text != NULL ? text : "");
    }
    free(line);
    return 0;
}
