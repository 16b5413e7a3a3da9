/* SPDX-License-Identifier: Apache-2.0 */
/* The root file system: what is read-only on the disk becomes writable in memory; then the mounts a container expects.
 */
#include "init/machine/root.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "init/base/disks.h"
#include "init/base/power_off.h"
#include "init/base/serial_line.h"
#include "init/machine/capabilities.h"
#include "init/machine/layer.h"
#include "init/machine/tuning.h"
#include "init/settings/settings.h"

#define SCRATCH "/.vmtailor/rw"
#define NEW_ROOT "/.vmtailor/root"

void root_scratch(void) {
    disk_number(0); /* while / is still the disk */
    if (mount("tmpfs", SCRATCH, "tmpfs", 0, "mode=0700") == 0)
        return;
    if (errno != ENODEV || mount("ramfs", SCRATCH, "ramfs", 0, NULL) != 0)
        fatal("TMPFS", "mount(tmpfs on %s): %s", SCRATCH, strerror(errno));
}

/* What is mounted there becomes `/`. */
static void become_root(const char *where) {
    if (chdir(where) != 0)
        fatal("", "chdir(%s): %s", where, strerror(errno));
    if (mount(".", "/", NULL, MS_MOVE, NULL) != 0)
        fatal("", "mount(%s moved to /): %s", where, strerror(errno));
    if (chroot(".") != 0 || chdir("/") != 0)
        fatal("", "chroot(%s): %s", where, strerror(errno));
}

/* VT_ROOTFILE: the root file system is a file in the folder that a runtime shares as root. Our own folder there is the
 * place to mount it, and a console is opened from it where the shared folder had none. */
void root_from_file(void) {
    const char *path = getenv("VT_ROOTFILE");
    if (path == NULL)
        return;
    if (mount(path, "/.vmtailor", "erofs", MS_RDONLY, NULL) != 0)
        fatal(errno == ENOTBLK ? "EROFS_FS_BACKED_BY_FILE" : "", "mount(%s as erofs): %s", path, strerror(errno));
    become_root("/.vmtailor");
    int console = isatty(0) ? -1 : open("/dev/console", O_RDWR | O_NOCTTY);
    if (console < 0)
        return;
    for (int fd = 0; fd < 3; fd++)
        dup2(console, fd);
    if (console > 2)
        close(console);
}

/* VT_ROOT: `overlay` (the default), `ro` (left as it is), `rw` (remounted; for a writable format on a private disk). */
void root_writable(void) {
    const char *wanted = getenv("VT_ROOT");
    if (wanted != NULL && strcmp(wanted, "ro") == 0)
        return;
    if (wanted != NULL && strcmp(wanted, "rw") == 0) {
        if (mount(NULL, "/", NULL, MS_REMOUNT, NULL) != 0)
            fatal("", "mount(/ writable): %s", strerror(errno));
        return;
    }
    layer_mount(SCRATCH);
    layer_folder(SCRATCH "/upper");
    layer_folder(SCRATCH "/work");
    if (mount("overlay", NEW_ROOT, "overlay", 0, "lowerdir=/,upperdir=" SCRATCH "/upper,workdir=" SCRATCH "/work") != 0)
        fatal(errno == ENODEV ? "OVERLAY_FS" : "", "mount(overlay on %s): %s", NEW_ROOT, strerror(errno));
    /* Our own programs as they are on the read-only disk, so that the container's root cannot put others in their
     * place. */
    if (capabilities_limited() && mount("/.vmtailor", NEW_ROOT "/.vmtailor", NULL, MS_BIND, NULL) != 0)
        fatal("", "mount(/.vmtailor in %s): %s", NEW_ROOT, strerror(errno));
    become_root(NEW_ROOT);
}

#define SYS "/sys"
#define SYS_FLAGS (MS_NOSUID | MS_NODEV | MS_NOEXEC)

static const struct {
    const char *type, *target, *options, *symbol;
    unsigned long flags;
} MOUNTS[] = {
    {"proc", "/proc", NULL, "PROC_FS", MS_NOSUID | MS_NODEV | MS_NOEXEC},
    {"sysfs", SYS, NULL, "SYSFS", SYS_FLAGS | MS_RDONLY},
    {"tmpfs", "/dev", "mode=0755", "TMPFS", MS_NOSUID | MS_STRICTATIME},
    {"devpts", "/dev/pts", "newinstance,ptmxmode=0666,mode=0620,gid=5", "UNIX98_PTYS", MS_NOSUID | MS_NOEXEC},
    {"tmpfs", "/dev/shm", "mode=1777", "TMPFS", MS_NOSUID | MS_NODEV | MS_NOEXEC},
    {"mqueue", "/dev/mqueue", NULL, "POSIX_MQUEUE", MS_NOSUID | MS_NODEV | MS_NOEXEC},
};

/* Where root, by being the owner, could make the kernel execute programs with all capabilities, or end the machine. */
static const char *const SETTINGS[] = {"/proc/sys", "/proc/sysrq-trigger", "/proc/bus/pci"};
#define SETTINGS_FLAGS (MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC)

void root_proc_read_only(void) {
    if (!capabilities_limited())
        return;
    for (size_t i = 0; i < sizeof SETTINGS / sizeof *SETTINGS; i++) {
        const char *path = SETTINGS[i];
        if (mount(path, path, NULL, MS_BIND, NULL) != 0 && errno == ENOENT)
            continue; /* the kernel has no such thing */
        if (mount(NULL, path, NULL, SETTINGS_FLAGS, NULL) != 0)
            fatal("", "mount(%s read-only): %s", path, strerror(errno));
    }
}

/* As engines set them: an ordinary user may listen on port 80, and ask another machine whether it is there. */
static const struct {
    const char *path, *value;
} USUAL[] = {
    {"/proc/sys/net/ipv4/ip_unprivileged_port_start", "0"},
    {"/proc/sys/net/ipv4/ping_group_range", "0 2147483647"},
};

static void settings_usual(void) {
    for (size_t i = 0; i < sizeof USUAL / sizeof *USUAL; i++) {
        int fd = open(USUAL[i].path, O_WRONLY | O_CLOEXEC);
        if (fd < 0)
            continue; /* the kernel has no such thing */
        if (write(fd, USUAL[i].value, strlen(USUAL[i].value)) < 0)
            line_note("", "write(%s): %s", USUAL[i].path, strerror(errno));
        close(fd);
    }
}

/* Records "PATH VALUE". */
static void settings_asked(void) {
    const struct surroundings *more = settings.surroundings;
    for (size_t i = 0; more != NULL && i < more->sysctls.count; i++) {
        const char *record = more->sysctls.items[i];
        const char *value = record + strcspn(record, " ") + 1;
        char path[256];
        snprintf(path, sizeof path, "/proc/sys/%.*s", (int)(value - record - 1), record);
        int fd = open(path, O_WRONLY | O_CLOEXEC);
        if (fd < 0 || write(fd, value, strlen(value)) < 0)
            fatal("", "--sysctl: %s of %s: %s", fd < 0 ? "open" : "write", path, strerror(errno));
        close(fd);
    }
}

/* Settings below /sys, which a container finds read-only. */
static void sys_tuned(void) {
    if (!tuning_asks(SYS "/"))
        return;
    if (mount(NULL, SYS, NULL, MS_REMOUNT | SYS_FLAGS, NULL) != 0)
        fatal("", "mount(%s writable): %s", SYS, strerror(errno));
    tuning_apply(SYS "/");
    if (!settings.privileged && mount(NULL, SYS, NULL, MS_REMOUNT | SYS_FLAGS | MS_RDONLY, NULL) != 0)
        fatal("", "mount(%s read-only): %s", SYS, strerror(errno));
}

void root_mounts(void) {
    for (size_t i = 0; i < sizeof MOUNTS / sizeof *MOUNTS; i++) {
        unsigned long flags = MOUNTS[i].flags & ~(settings.privileged ? (unsigned long)MS_RDONLY : 0);
        mkdir(MOUNTS[i].target, 0755); /* is there, or cannot be made: mount tells */
        if (mount(MOUNTS[i].type, MOUNTS[i].target, MOUNTS[i].type, flags, MOUNTS[i].options) != 0) {
            if (tuning_asks(MOUNTS[i].target))
                fatal(errno == ENODEV ? MOUNTS[i].symbol : "", "this kernel has no %s, and is to set a file there",
                      MOUNTS[i].target);
            line_note(errno == ENODEV ? MOUNTS[i].symbol : "", "mount(%s on %s): %s", MOUNTS[i].type, MOUNTS[i].target,
                      strerror(errno));
        } else if (i == 0) { /* proc */
            settings_usual();
            tuning_apply("/proc/sys/");
            settings_asked();
            if (!settings.pid_one) /* else once more, from inside the namespace */
                root_proc_read_only();
        } else if (strcmp(MOUNTS[i].target, SYS) == 0) {
            sys_tuned();
        }
    }
}

bool root_proc_of_namespace(void) {
    if (umount2("/proc", MNT_DETACH) != 0)
        return true; /* there was none */
    if (mount(MOUNTS[0].type, MOUNTS[0].target, MOUNTS[0].type, MOUNTS[0].flags, NULL) != 0)
        return false;
    root_proc_read_only();
    return true;
}

void tools_mount(void) {
    const char *type = getenv("VT_TOOLS");
    if (type == NULL)
        return;
    if (mknod("/dev/.tools", S_IFBLK | 0600, disk_number(2)) != 0)
        fatal("", "mknod(the tools volume): %s", strerror(errno));
    if (mount("/dev/.tools", "/.vmtailor/tools", type, MS_RDONLY | MS_NODEV, NULL) != 0)
        fatal("", "mount(the tools volume, third disk, as %s): %s", type, strerror(errno));
    unlink("/dev/.tools");
}
