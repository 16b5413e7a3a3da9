/* SPDX-License-Identifier: Apache-2.0 */
#include "small-init/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/tracer_name.h"
#include "small-init/say.h"

#define MOST_WORDS 64
#define WAIT_MS 10000
/* Without a time zone, strace looks for a file that names one twice for each call. Nobody else spells it like this. */
#define ZONE "TZ"
#define NO_ZONE "<UTC>0"

bool watch_is_wanted(void) {
    return access(WATCH "/disk", R_OK) == 0;
}

/* Opened before /dev goes with the root. */
static int open_disk(void) {
    char path[64];
    int fd;
    read_text(WATCH "/disk", path, sizeof path);
    for (int waited = 0; (fd = open(path, O_WRONLY | O_CLOEXEC)) < 0 && waited < WAIT_MS; waited += 10)
        nanosleep(&(struct timespec){0, 10000000}, NULL);
    if (fd < 0)
        fatal("the log's disk %s: %s", path, strerror(errno));
    return fd;
}

static void start_log(void) {
    int disk = open_disk();
    if (mkfifo(WATCH_FIFO, 0600) && errno != EEXIST)
        fatal("mkfifo: %s", strerror(errno));
    pid_t child = fork();
    if (child < 0)
        fatal("fork: %s", strerror(errno));
    if (child) {
        close(disk);
        return;
    }
    setsid();
    if (disk == WATCH_DISK)
        fcntl(disk, F_SETFD, 0);
    else
        dup2(disk, WATCH_DISK);
    execl("/init", "@vmtailor-log", WATCH_LOG, (char *)NULL);
    _exit(1);
}

void watch_leave(void) {
    const char *zone = getenv(ZONE);
    if (zone && !strcmp(zone, NO_ZONE))
        unsetenv(ZONE);
}

void watch_start(char **argv) {
    /* The tracer is started by its own loader: nothing of the root's libraries is used. Its name is the first word. */
    static char *words[MOST_WORDS + 16] = {TRACER_NAME, "--library-path", WATCH "/lib", WATCH "/strace"};
    static char options[4096];
    size_t count = 4;
    start_log();
    if (access(WATCH "/strace", X_OK))
        return;
    char *rest = options;
    read_text(WATCH "/options", options, sizeof options);
    for (char *one = strtok_r(rest, "\n", &rest); one && count < MOST_WORDS; one = strtok_r(NULL, "\n", &rest))
        words[count++] = one;
    char *const last[] = {"-o", WATCH_FIFO, "--", "/init", WATCH_BECOME};
    for (size_t i = 0; i < sizeof last / sizeof *last; i++)
        words[count++] = last[i];
    for (size_t i = 1; argv[i] && count < MOST_WORDS + 15; i++)
        words[count++] = argv[i]; /* what the kernel's command line has for init */
    setenv(ZONE, NO_ZONE, 0);
    execv(WATCH "/ld.so", words);
    fatal("the tracer: %s", strerror(errno));
}
