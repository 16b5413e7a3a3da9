/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PID 1 of the machines that vmtailor makes. It does what a container engine does around a container, asks as little of
 * the kernel as it can (no /proc, no epoll, no eventfd, no netlink), and tells the host on the serial line how it went.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "init.h"

#define KMSG "/dev/.vt-kmsg"

/* The kernel gives us descriptors 0 to 2, unless the root has no /dev/console: then something must hold their place. */
static void hold_low_descriptors(void) {
    int ends[2];
    while (fcntl(2, F_GETFD) < 0)
        if (pipe(ends) != 0)
            return;
}

static void from_host(void *context, char type, const uint8_t *payload, size_t length) {
    (void)context;
    entry_from_host(type, payload, length);
}

static struct wire_decoder decoder;

static void hear_host(struct watch *watch, short events) {
    (void)events;
    uint8_t data[512];
    ssize_t got = read(watch->fd, data, sizeof data);
    if (got > 0)
        wire_decode(&decoder, data, (size_t)got, from_host, NULL);
}

static void listen_to_host(void) {
    static struct watch host;
    memcpy(decoder.key, told.key, sizeof decoder.key);
    loop_add(&host, port_fd(), POLLIN, hear_host);
}

/* We are also what a packaged kernel calls to load a module (stage 1 says so): "init -q -- NAME". There is none to
 * load, but who asked for what is in the kernel's log, and so in the trace. */
static int note_module_request(const char *name) {
    char line[160];
    int length = snprintf(line, sizeof line, "<6>vmtailor: module requested: %.100s\n", name);
    if (mknod(KMSG, S_IFCHR | 0600, makedev(1, 11)) != 0 && errno != EEXIST)
        return 1;
    int fd = open(KMSG, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    unlink(KMSG);
    struct stat found; /* the container may have put something else there */
    if (fd < 0 || fstat(fd, &found) != 0 || !S_ISCHR(found.st_mode) || found.st_rdev != makedev(1, 11))
        return 2;
    return write(fd, line, (size_t)length) < 0 ? 2 : 1;
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "--exec") == 0)
        return child_exec_again(argc, argv);
    if (argc == 4 && strcmp(argv[1], "-q") == 0)
        return note_module_request(argv[3]);
    struct stamp started = vt_mark_init();
    if (getpid() != 1) {
        fprintf(stderr, "init: runs as PID 1 of a machine that vmtailor made, nowhere else\n");
        return 2;
    }
    hold_low_descriptors();
    port_open();
    root_scratch();
    told_read();
    port_text(WIRE_HELLO, "init 1");
    port_mark("init", started);
    root_writable();
    root_mounts();
    devices_make();
    identity_set();
    net_up();
    tools_mount();
    loop_start();
    tracelog_open();
    listen_to_host();
    capabilities_limit();
    entry_start();
    exercise_start();

    int exit_code, by_signal;
    const char *why;
    while (!entry_ended(&exit_code, &by_signal, &why))
        loop_step(exercise_advance());
    exercise_entry_ended(exit_code);
    end_all_processes();
    port_text(WIRE_EXIT, "%d %d %s", exit_code, by_signal, why);
    port_mark("end", vt_mark_end());
    tracelog_close();
    power_off();
}
