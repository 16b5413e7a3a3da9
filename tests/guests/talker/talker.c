// SPDX-License-Identifier: Apache-2.0
// Says how it was started. `say`: and exits 3. `copy`: copies its input to its output, and exits 4. `wait`: until a
// signal comes, whose number is its exit status. `stubborn`: for ever. `signals`: names each signal that comes, and
// ends at SIGTERM with 5. `flood`: fills its output until SIGUSR1 comes, and exits 6; `drown`: for ever. `key`: waits
// for a byte of input and exits with its value. `ports`: tries to open virtio ports. `poweroff`, `halt`, `restart`: the
// machine; `silent-halt`: with its console silenced before.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

extern char **environ;

static volatile sig_atomic_t heard;

static void hear(int number) {
    heard = number;
}

static int wait_for_a_signal(int stubborn) {
    struct sigaction action = {.sa_handler = hear};
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    puts("waiting");
    fflush(stdout);
    while (stubborn || !heard)
        pause();
    return heard;
}

static int name_signals(void) {
    sigset_t all;
    int number = 0;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    puts("waiting");
    while (number != SIGTERM) {
        fflush(stdout);
        if (sigwait(&all, &number) == 0)
            printf("signal %d\n", number);
    }
    fflush(stdout);
    return 5;
}

static int flood(int stubborn) {
    static char line[1000];
    struct sigaction action = {.sa_handler = hear};
    sigaction(SIGUSR1, &action, NULL);
    memset(line, 'x', sizeof line - 1);
    line[sizeof line - 1] = '\n';
    while (stubborn || !heard)
        if (write(1, line, sizeof line) < 0 && !heard)
            return 1;
    return 6;
}

static int wait_for_a_key(void) {
    unsigned char key;
    puts("waiting");
    fflush(stdout);
    return read(0, &key, 1) == 1 ? key : 2;
}

/* The line to the host is a device like any other to whoever may make its node. */
static int open_ports(void) {
    for (unsigned major = 254; major >= 234; major--) {
        unlink("/dev/port");
        if (mknod("/dev/port", S_IFCHR | 0600, makedev(major, 1)) != 0)
            return 1;
        int fd = open("/dev/port", O_RDWR | O_NONBLOCK);
        if (fd >= 0 || errno == EBUSY)
            printf("%s\n", fd >= 0 ? "opened" : "busy");
    }
    return 0;
}

static int end_machine(const char *what) {
    sync();
    reboot(!strcmp(what, "poweroff") ? RB_POWER_OFF : !strcmp(what, "halt") ? RB_HALT_SYSTEM : RB_AUTOBOOT);
    perror("reboot");
    return 1;
}

/* From then on not even the kernel's last words reach the console. */
static int silence_console(void) {
    FILE *levels = fopen("/proc/sys/kernel/printk", "w");
    if (!levels || fputs("0\n", levels) < 0 || fclose(levels)) {
        perror("printk");
        return 1;
    }
    return 0;
}

static int copy(void) {
    static char data[131072]; // as cat reads
    ssize_t size;
    while ((size = read(0, data, sizeof data)) > 0)
        if (write(1, data, (size_t)size) != size)
            return 1;
    return size == 0 ? 4 : 2;
}

int main(int argc, char *argv[]) {
    const char *what = argc > 1 ? argv[1] : "say";
    if (!strcmp(what, "copy"))
        return copy();
    if (!strcmp(what, "wait") || !strcmp(what, "stubborn"))
        return wait_for_a_signal(!strcmp(what, "stubborn"));
    if (!strcmp(what, "signals"))
        return name_signals();
    if (!strcmp(what, "flood") || !strcmp(what, "drown"))
        return flood(!strcmp(what, "drown"));
    if (!strcmp(what, "key"))
        return wait_for_a_key();
    if (!strcmp(what, "ports"))
        return open_ports();
    if (!strcmp(what, "silent-halt"))
        return silence_console() ? 1 : end_machine("halt");
    if (!strcmp(what, "poweroff") || !strcmp(what, "halt") || !strcmp(what, "restart"))
        return end_machine(what);
    char folder[512];
    printf("user %u group %u\n", (unsigned)getuid(), (unsigned)getgid());
    printf("folder %s\n", getcwd(folder, sizeof folder) ? folder : "?");
    for (int i = 0; i < argc; i++)
        printf("word %s\n", argv[i]);
    for (char **variable = environ; *variable; variable++)
        printf("variable %s\n", *variable);
    fputs("an aside\n", stderr);
    return 3;
}
