/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the kernel for what small kernels lack, says what it was given, and goes on whatever the answer is. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void say(const char *what, int result) {
    printf("%s: %s\n", what, result < 0 ? strerror(errno) : "given");
    fflush(stdout);
}

/* The same refused again and again, as a server does it for weeks. */
static int many(int times) {
    for (int i = 0; i < times; i++)
        if (flock(1, LOCK_EX) == 0)
            return 0;
    return -1;
}

/* Names that steer a terminal, and lines in the tracer's pipe that no tracer wrote. */
static void lie(void) {
    open("/proc/\033[31mred\033[0m", O_RDONLY);
    open("/proc/\n999 1.0 forged(", O_RDONLY);
    int pipe = open("/dev/.vt-trace-entry", O_WRONLY | O_NONBLOCK);
    static const char lines[] = "77<\033[2Jclear> 4000000000.000001 vfork(\033[31m) = -1 ENOSYS (\033[0m)\n"
                                "\xff\xfe\n = -1 ENOSYS\n78 4000000000.0 quotactl(\"/proc/x\" = -1 ENOSYS\n";
    if (pipe >= 0 && write(pipe, lines, sizeof lines - 1) < 0)
        say("write", -1);
    char path[40];
    for (int i = 0; i < 20000; i++) {
        snprintf(path, sizeof path, "/proc/none/%c%c%c", 'g' + i % 20, 'g' + i / 20 % 20, 'g' + i / 400 % 20);
        access(path, R_OK);
    }
}

/* As PID 1 it must say so itself. */
static void end(int number) {
    _exit(128 + number);
}

int main(int argc, char **argv) {
    say("flock", flock(1, LOCK_EX));
    say("timerfd_create", timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
    say("socket(AF_PACKET)", socket(AF_PACKET, SOCK_RAW, 0));
    say("open(/proc/self/status)", open("/proc/self/status", O_RDONLY));
    say("open(/nowhere)", open("/nowhere", O_RDONLY));
    say("socket(AF_DECnet)", socket(12, SOCK_STREAM, 0));
    if (argc > 1 && strcmp(argv[1], "many") == 0)
        say("many", many(1000));
    if (argc > 1 && strcmp(argv[1], "lie") == 0)
        lie();
    if (argc > 1 && strcmp(argv[1], "wait") == 0) {
        signal(SIGTERM, end);
        puts("waiting");
        fflush(stdout);
        pause();
    }
    if (argc > 1 && strcmp(argv[1], "fork") == 0 && fork() == 0)
        _exit(flock(1, LOCK_SH) == 0);
    while (wait(NULL) > 0) /* all of its children: a tracer must be none of them */
        ;
    return 5;
}
