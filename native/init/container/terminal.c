/* SPDX-License-Identifier: Apache-2.0 */
#include "init/container/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

static void set_size(int master, unsigned long rows, unsigned long cols) {
    ioctl(master, TIOCSWINSZ, &(struct winsize){.ws_row = (unsigned short)rows, .ws_col = (unsigned short)cols});
}

int terminal_open(int rows, int cols, int *slave, char path[TERMINAL_PATH]) {
    int number, unlock = 0;
    snprintf(path, TERMINAL_PATH, "/dev/pts/ptmx");
    int master = open(path, O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (master < 0)
        return -1;
    *slave = -1;
    if (ioctl(master, TIOCSPTLCK, &unlock) == 0 && ioctl(master, TIOCGPTN, &number) == 0) {
        snprintf(path, TERMINAL_PATH, "/dev/pts/%d", number);
        *slave = open(path, O_RDWR | O_NOCTTY | O_CLOEXEC);
    }
    if (*slave < 0) {
        int error = errno;
        close(master);
        errno = error;
        return -1;
    }
    set_size(master, (unsigned long)rows, (unsigned long)cols);
    return master;
}

void terminal_resize(int master, const char *size) {
    char *rest;
    unsigned long rows = strtoul(size, &rest, 10), cols = strtoul(rest, NULL, 10);
    if (rows > 0 && cols > 0)
        set_size(master, rows, cols);
}
