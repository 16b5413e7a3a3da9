// SPDX-License-Identifier: Apache-2.0
#include "supervise/terminal.h"

#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

static struct termios saved;
static bool is_saved;

void terminal_size(int *rows, int *columns) {
    struct winsize size;
    *rows = 24;
    *columns = 80;
    for (int fd = 0; fd < 3; fd++)
        if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0) {
            *rows = size.ws_row;
            *columns = size.ws_col;
            return;
        }
}

void terminal_raw(void) {
    struct termios mode;
    if (tcgetattr(0, &mode))
        return;
    if (!is_saved)
        saved = mode;
    is_saved = true;
    cfmakeraw(&mode);
    mode.c_cc[VMIN] = 1;
    mode.c_cc[VTIME] = 0;
    tcsetattr(0, TCSANOW, &mode);
}

void terminal_restore(void) {
    // At once: waiting until all output is read (TCSADRAIN) would be for ever where nobody reads. In the background the
    // terminal is another's, and asking for it would stop us; one that does not control us cannot.
    pid_t group = tcgetpgrp(0);
    if (is_saved && (group < 0 || group == getpgrp()))
        tcsetattr(0, TCSANOW, &saved);
    is_saved = false;
}
