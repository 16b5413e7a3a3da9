// SPDX-License-Identifier: Apache-2.0
// Says how it was started. `say`: and exits 3. `copy`: copies its input to its output, and exits 4. `wait`: until a
// signal comes, whose number is its exit status. `stubborn`: for ever.
#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

static volatile sig_atomic_t heard;

static void hear(int number) { heard = number; }

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

static int copy(void) {
    char data[512];
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
