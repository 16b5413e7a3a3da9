// SPDX-License-Identifier: Apache-2.0
/*
 * /init of a small initial RAM disk: loads the modules in /modules in the order of /modules/list, waits for the root
 * disk, makes the volume that dm-mod.create= describes, mounts the root as the kernel's command line says (root= a
 * device, rootfstype=, ro or rw) and becomes its init.
 *
 * Where the initial RAM disk has a folder /watch, somebody stays behind in it who notes what the system does; with a
 * tracer there, every system call of the root's init and of all its descendants (watch.h).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "small-init/mapped.h"
#include "small-init/say.h"
#include "small-init/watch.h"
#include "small-init/watch_log.h"

#define WAIT_MS 10000

static char command_line[4096];

// The last value of `name=` on the command line, or of the bare word `name` (then itself); NULL when it is not there.
static const char *word(const char *name) {
    static char copy[sizeof(command_line)];
    const char *found = NULL;
    char *rest = copy;
    size_t size = strlen(name);
    strcpy(copy, command_line);
    for (char *one = strtok_r(rest, " \n", &rest); one; one = strtok_r(NULL, " \n", &rest))
        if (!strncmp(one, name, size) && (one[size] == '=' || !one[size]))
            found = one[size] ? one + size + 1 : one;
    return found ? strdup(found) : NULL;
}

static void load_modules(void) {
    static char list[16384];
    char *rest = list;
    read_text("/modules/list", list, sizeof(list));
    for (char *name = strtok_r(rest, "\n", &rest); name; name = strtok_r(NULL, "\n", &rest)) {
        char path[256];
        snprintf(path, sizeof(path), "/modules/%s", name);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            fatal("module %s: %s", name, strerror(errno));
        if (syscall(SYS_finit_module, fd, "", 0) && errno != EEXIST)
            say("module %s is not loaded: %s", name, strerror(errno)); /* as where its device is not */
        close(fd);
        unlink(path);
    }
}

static void mount_root(void) {
    static const char *const types[] = {"ext4", "xfs", "btrfs", "erofs", "squashfs"};
    const char *root = word("root"), *type = word("rootfstype");
    unsigned long flags = word("rw") ? 0 : MS_RDONLY;
    struct timespec pause = {0, 2000000};
    if (!root || strncmp(root, "/dev/", 5))
        fatal("root=%s is no device", root ? root : "");
    for (int waited = 0; access(root, F_OK); waited += 2) {
        if (waited > WAIT_MS)
            fatal("%s did not appear", root);
        nanosleep(&pause, NULL);
    }
    if (type && !mount(root, "/root", type, flags, NULL))
        return;
    for (size_t i = 0; !type && i < sizeof(types) / sizeof(types[0]); i++)
        if (!mount(root, "/root", types[i], flags, NULL))
            return;
    fatal("%s cannot be mounted: %s", root, strerror(errno));
}

/* Go where the root is, and become its init. What stays behind keeps /proc. */
_Noreturn static void become(char **argv) {
    static char *const known[] = {"/sbin/init", "/etc/init", "/bin/init", "/bin/sh"};
    read_text("/proc/cmdline", command_line, sizeof(command_line));
    const char *wanted = word("init");
    watch_leave();
    if (!watch_is_wanted()) {
        umount("/proc");
        unlink("/init");
    }
    if (mount("/dev", "/root/dev", NULL, MS_MOVE, NULL) || chdir("/root") || mount(".", "/", NULL, MS_MOVE, NULL) ||
        chroot(".") || chdir("/"))
        fatal("the new root: %s", strerror(errno));
    if (wanted) {
        argv[0] = (char *)wanted;
        execv(wanted, argv);
    }
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        argv[0] = known[i];
        execv(known[i], argv);
    }
    fatal("no init found: %s", strerror(errno));
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], WATCH_LOG))
        watch_log();
    if (argc > 1 && !strcmp(argv[1], WATCH_BECOME))
        become(argv + 1);
    mkdir("/dev", 0755);
    mkdir("/proc", 0755);
    mkdir("/root", 0755);
    if (mount("devtmpfs", "/dev", "devtmpfs", 0, NULL) || mount("proc", "/proc", "proc", 0, NULL))
        fatal("mount: %s", strerror(errno));
    read_text("/proc/cmdline", command_line, sizeof(command_line));
    load_modules();
    map_volume(command_line);
    mount_root();
    if (watch_is_wanted())
        watch_start(argv); /* returns where nothing is traced */
    become(argv);
}
