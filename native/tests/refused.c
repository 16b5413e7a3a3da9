/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs what tells refused calls under the sanitizers: lines of a tracer from standard input, what the host would be
 * told on standard output. EAGAIN is quiet, and the container begins at second 100.
 *
 *     refused < LINES
 */
#include "init/container/refused.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "init/base/serial_line.h"
#include "init/settings/settings.h"

struct settings settings;

void line_file(const char *name, const void *data, size_t length) {
    if (strcmp(name, "refused") != 0 || length > WIRE_PAYLOAD - sizeof "refused")
        abort(); /* it must fit one frame */
    fwrite(data, 1, length, stdout);
}

int main(void) {
    char *quiet[] = {"EAGAIN"};
    settings.quiet = (struct list){quiet, 1};
    if (!refused_wanted())
        return 2;
    refused_begin(100 * 1000000000ull);
    char *line = NULL;
    size_t room = 0;
    for (ssize_t length; (length = getline(&line, &room, stdin)) > 0;) {
        size_t bare = (size_t)length - (line[length - 1] == '\n');
        char *copy = malloc(bare + (bare == 0)); /* its own memory, so that reading past it is seen */
        memcpy(copy, line, bare);
        refused_line(copy, bare);
        free(copy);
    }
    free(line);
    refused_close();
    return 0;
}
