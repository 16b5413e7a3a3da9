/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The attendant of a system with an init of its own: a shell of ours that is no part of that system.
 *
 * It stands on a disk of its own, from which the kernel is told to start. As PID 1 it mounts the system's root, leaves
 * a child behind, goes where the system is, and becomes its init: the system starts as it does without us. The child
 * has its own line to the host, the second serial port, and drives the system by the exercise, as a user of it would:
 * by commands, and by requests over the loopback interface. In the end it says what the system says of itself, and asks
 * it to shut down.
 *
 * /system on its disk: four words, the root's device, its file system, `ro` or `rw`, and the program to become.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "arch.h"
#include "attendant/attend.h"
#include "init/base/power_off.h"

#define ROOT "/root"
#define PORT "/dev/.vmtailor-port"
#define WAIT_MS 10000

static char device[192], type[32], mode[8], program[1024];

static void read_system(void) {
    FILE *file = fopen("/system", "re");
    if (file == NULL || fscanf(file, "%191s %31s %7s %1023s", device, type, mode, program) != 4)
        fatal("", "/system does not say what to start");
    fclose(file);
}

static void mount_root(void) {
    /* An initial RAM disk before us has mounted it already. */
    if (access("/dev/null", F_OK) != 0 && mount("devtmpfs", "/dev", "devtmpfs", 0, NULL) != 0)
        fatal("DEVTMPFS", "mount(devtmpfs): %s", strerror(errno));
    for (int waited = 0; access(device, F_OK) != 0; waited += 2) {
        if (waited > WAIT_MS)
            fatal("", "%s did not appear", device);
        nanosleep(&(struct timespec){0, 2000000}, NULL);
    }
    if (mount(device, ROOT, type, strcmp(mode, "rw") == 0 ? 0 : MS_RDONLY, NULL) != 0)
        fatal("", "mount(%s as %s): %s", device, type, strerror(errno));
}

static int open_port(void) {
    unlink(PORT);
    if (mknod(PORT, S_IFCHR | 0600, ARCH_SECOND_PORT) != 0)
        fatal("", "mknod(the second serial port): %s", strerror(errno));
    int port = open(PORT, O_RDWR | O_NOCTTY | O_CLOEXEC);
    unlink(PORT);
    if (port < 0)
        fatal("SERIAL_8250_CONSOLE", "open(the second serial port): %s", strerror(errno));
    return fcntl(port, F_DUPFD_CLOEXEC, 10);
}

/* What an initial RAM disk has mounted goes along; our own disk stays behind, held by the child alone. */
static void go_there(void) {
    static const char *const mounts[] = {"/dev", "/proc", "/sys", "/run"};
    for (size_t i = 0; i < sizeof mounts / sizeof *mounts; i++) {
        char to[32];
        snprintf(to, sizeof to, ROOT "%s", mounts[i]);
        mount(mounts[i], to, NULL, MS_MOVE, NULL); /* refused where nothing is mounted */
    }
    if (chdir(ROOT) != 0 || syscall(SYS_pivot_root, ".", ".") != 0 || umount2(".", MNT_DETACH) != 0 || chdir("/") != 0)
        fatal("", "the system's root: %s", strerror(errno));
}

int main(int argc, char **argv) {
    int gone[2];
    (void)argc;
    if (getpid() != 1) {
        fprintf(stderr, "attendant: runs as PID 1 of a machine that vmtailor started, nowhere else\n");
        return 2;
    }
    read_system();
    mount_root();
    attend_prepare(open_port());
    if (pipe2(gone, O_CLOEXEC) != 0)
        fatal("", "pipe2: %s", strerror(errno));
    pid_t child = fork();
    if (child < 0)
        fatal("", "fork: %s", strerror(errno));
    if (child == 0) {
        char none;
        close(gone[1]);
        /* Service managers spare, in their hour of change, a process whose name begins so. */
        memset(argv[0], 0, strlen(argv[0]));
        argv[0][0] = '@';
        setsid();
        while (read(gone[0], &none, 1) < 0 && errno == EINTR)
            ;
        attend(); /* from here on the system is there */
    }
    go_there();
    argv[0] = program;
    execv(program, argv); /* the other end of the pipe closes with it */
    fatal("", "execve(%s): %s", program, strerror(errno));
}
