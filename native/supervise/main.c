// SPDX-License-Identifier: Apache-2.0
// Starts one machine by orders, and stays beside it: relays its container's streams and signals, and ends with the
// container's exit status.
//
//   supervise FD               orders from an inherited descriptor
//   supervise --orders PATH    orders from a file that nobody else may write
//
// Status 200: a file is not what it was when it was checked, and nothing was started.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "supervise/caught.h"
#include "supervise/end.h"
#include "supervise/relay.h"

#define MOST_ORDERS (64 << 20)
#define DECLINED 200

static struct orders orders;
static struct relay relay;

static _Noreturn void refuse(const char *what) {
    fprintf(stderr, "supervise: %s: %s\n", what, strerror(errno));
    exit(64);
}

// A file that we open would come to lie at a standard stream that was closed, and get the container's output.
static void hold_streams(void) {
    int fd;
    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd < 3);
    close(fd);
}

// What our caller's shell had open is for nobody.
static void close_on_exec(void) {
    DIR *folder = opendir("/proc/self/fd");
    struct dirent *entry;
    for (int fd = 3; !folder && fd < 1024; fd++)
        fcntl(fd, F_SETFD, FD_CLOEXEC);
    while (folder && (entry = readdir(folder))) {
        int fd = atoi(entry->d_name);
        if (fd > 2)
            fcntl(fd, F_SETFD, FD_CLOEXEC);
    }
    if (folder)
        closedir(folder);
}

static int open_orders(int count, char **words) {
    struct stat what;
    if (count == 2)
        return atoi(words[1]);
    if (count != 3 || strcmp(words[1], "--orders")) {
        fprintf(stderr, "usage: supervise FD | --orders PATH\n");
        exit(64);
    }
    int file = open(words[2], O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0 || fstat(file, &what))
        refuse(words[2]);
    errno = EPERM;
    if (!S_ISREG(what.st_mode) || what.st_uid != geteuid() || what.st_mode & 022)
        refuse(words[2]);
    return file;
}

static void read_orders(int file) {
    size_t length = 0, room = 65536;
    char *text = malloc(room);
    ssize_t got = 0;
    while (text && (got = read(file, text + length, room - length)) > 0) {
        length += (size_t)got;
        if (length == room && room < MOST_ORDERS)
            text = realloc(text, room *= 2);
    }
    if (!text || got < 0 || length == room)
        refuse("orders");
    close(file);
    orders_read(&orders, text, length);
}

int main(int count, char **words) {
    hold_streams();
    close_on_exec();
    read_orders(open_orders(count, words));
    if (!machine_open(&orders)) {
        if (orders.otherwise.count)
            execv(orders.otherwise.items[0], orders.otherwise.items);
        return DECLINED;
    }
    relay.orders = &orders;
    relay.signals = caught_start();
    outlet_open(&relay.out, 1);
    outlet_open(&relay.err, 2);
    relay_run(&relay);
    relay_drain(&relay);
    int status = end_status(&relay);
    if (status < 0)
        end_explain(&relay);
    return status;
}
