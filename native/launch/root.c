// SPDX-License-Identifier: Apache-2.0
#include "launch/root.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "launch/fail.h"

// Where the new root is put together: any folder that every host has.
#define BASE "/tmp"

static void write_map(const char *path, unsigned inside) {
    char line[64];
    int length = snprintf(line, sizeof(line), "%u %u 1", inside, inside);
    int file = open(path, O_WRONLY | O_CLOEXEC);
    if (file < 0 || write(file, line, (size_t)length) != length)
        fail("write", path);
    close(file);
}

static void new_namespaces(const struct root *root) {
    unsigned uid = geteuid(), gid = getegid();
    bool user = root->user;
    if (unshare(CLONE_NEWNS | (user ? CLONE_NEWUSER : 0)))
        fail(user ? "make a user namespace" : "make a mount namespace", "");
    if (!user)
        return;
    if (root->map) {
        root->map();
        return;
    }
    int file = open("/proc/self/setgroups", O_WRONLY | O_CLOEXEC);
    if (file >= 0 && write(file, "deny", 4) != 4)
        fail("write", "/proc/self/setgroups");
    if (file >= 0)
        close(file);
    write_map("/proc/self/uid_map", uid);
    write_map("/proc/self/gid_map", gid);
}

// As openat2(2) takes it, and its number on every processor.
struct how_to_open {
    unsigned long long flags, mode, resolve;
};
#define NO_LINKS 0x04 // RESOLVE_NO_SYMLINKS
#ifndef SYS_openat2
#define SYS_openat2 437
#endif

// What is shared has no link in its path: its starter has followed them all, and none may have come since. An older
// kernel looks at the last name alone.
static int open_shared(const struct item *item) {
    struct how_to_open how = {.flags = O_PATH | O_CLOEXEC | O_NOFOLLOW, .resolve = NO_LINKS};
    struct stat found;
    int opened = (int)syscall(SYS_openat2, AT_FDCWD, item->source, &how, sizeof(how));
    if (opened < 0 && errno == ENOSYS)
        opened = open(item->source, O_PATH | O_CLOEXEC | O_NOFOLLOW);
    if (opened < 0)
        fail("open", item->source);
    if (fstat(opened, &found))
        fail("look at", item->source);
    errno = item->kind == FOLDER ? ENOTDIR : EINVAL;
    if (!(item->kind == FOLDER ? S_ISDIR(found.st_mode) : S_ISREG(found.st_mode)))
        fail("share", item->source);
    return opened;
}

// Before anything is mounted, so that each name means what it meant to the starter.
static void open_sources(struct root *root) {
    for (size_t i = 0; i < root->count; i++) {
        struct item *item = &root->items[i];
        if (item->kind == COPY)
            item->opened = atoi(item->source);
        else if (item->kind == FOLDER || item->kind == FILE_ALONE)
            item->opened = open_shared(item);
        else
            item->opened = open(item->source, O_PATH | O_CLOEXEC);
        if (item->opened < 0)
            fail("open", item->source);
    }
}

static void make_parents(const char *path) {
    char part[PATH_MAX];
    for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        snprintf(part, sizeof(part), "%.*s", (int)(slash - path), path);
        if (mkdir(part, 0755) && errno != EEXIST)
            fail("make", part);
    }
}

static void make_place(const char *path, mode_t like) {
    if (S_ISDIR(like)) {
        if (mkdir(path, 0755) && errno != EEXIST)
            fail("make", path);
        return;
    }
    int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (file < 0)
        fail("make", path);
    close(file);
}

static void bind_here(const struct item *item, const char *path, unsigned long below, unsigned long flags) {
    char source[64];
    struct statvfs at;
    snprintf(source, sizeof(source), "/proc/self/fd/%d", item->opened);
    if (mount(source, path, NULL, MS_BIND | below, NULL))
        fail("show", item->path);
    if (statvfs(path, &at))
        fail("look at", item->path);
    // A user namespace may not take off what is set already.
    flags |= at.f_flag & (ST_RDONLY | ST_NOSUID | ST_NODEV | ST_NOEXEC | ST_NOATIME | ST_NODIRATIME);
    if (at.f_flag & ST_RELATIME)
        flags |= MS_RELATIME;
    if (mount(NULL, path, NULL, MS_REMOUNT | MS_BIND | flags, NULL))
        fail("protect", item->path);
}

static void show(const struct item *item, const char *path, unsigned long flags) {
    struct stat source;
    if (fstat(item->opened, &source))
        fail("look at", item->path);
    make_place(path, source.st_mode);
    bind_here(item, path, MS_REC, flags);
}

// As mount_setattr(2) takes it: older C libraries do not know it.
struct attributes {
    unsigned long long set, clear, propagation, user_namespace;
};
#define ATTRIBUTE_READ_ONLY 0x1
#define ATTRIBUTE_NO_SUID 0x2
#define ATTRIBUTE_NO_DEVICES 0x4
#ifndef AT_RECURSIVE
#define AT_RECURSIVE 0x8000
#endif
#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif

// With what is mounted below, under the same rules; where the kernel cannot rule them all, without it.
static void share(const struct item *item, const char *path) {
    struct stat source;
    char from[64];
    struct attributes rules = {.set = ATTRIBUTE_NO_SUID | ATTRIBUTE_NO_DEVICES |
                                      (item->read_only ? ATTRIBUTE_READ_ONLY : 0)};
    if (fstat(item->opened, &source))
        fail("look at", item->source);
    make_place(path, source.st_mode);
    snprintf(from, sizeof(from), "/proc/self/fd/%d", item->opened);
    if (mount(from, path, NULL, MS_BIND | MS_REC, NULL))
        fail("share", item->source);
    if (syscall(SYS_mount_setattr, AT_FDCWD, path, AT_RECURSIVE, &rules, sizeof(rules)) == 0)
        return;
    if (errno != ENOSYS || umount2(path, MNT_DETACH))
        fail("protect", item->source);
    bind_here(item, path, 0, MS_NOSUID | MS_NODEV | (item->read_only ? MS_RDONLY : 0));
}

// A node of its own, which needs no rights to the host's; where none can be made, the host's.
static void show_device(const struct item *item, const char *path, uid_t owner, gid_t group) {
    struct stat device;
    if (fstat(item->opened, &device))
        fail("look at", item->path);
    if (mknod(path, (device.st_mode & S_IFMT) | 0600, device.st_rdev) == 0) {
        if (chown(path, owner, group))
            fail("give away", item->path);
        return;
    }
    make_place(path, S_IFREG);
    bind_here(item, path, MS_REC, MS_NOSUID | MS_NOEXEC);
}

static void copy(const struct item *item, const char *path) {
    off_t from = 0;
    ssize_t sent;
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
    if (file < 0)
        fail("make", item->path);
    while ((sent = sendfile(file, item->opened, &from, 1 << 30)) > 0)
        ;
    if (sent < 0)
        fail("copy", item->path);
    close(file);
}

static void fill(struct root *root, uid_t owner, gid_t group) {
    char path[PATH_MAX];
    for (size_t i = 0; i < root->count; i++) {
        struct item *item = &root->items[i];
        if (snprintf(path, sizeof(path), "%s%s", BASE, item->path) >= (int)sizeof(path))
            errno = ENAMETOOLONG, fail("make", item->path);
        make_parents(path);
        if (item->kind == SHOW)
            show(item, path, MS_RDONLY | MS_NOSUID | MS_NODEV);
        else if (item->kind == DEVICE)
            show_device(item, path, owner, group);
        else if (item->kind == COPY)
            copy(item, path);
        else if (item->kind == FOLDER || item->kind == FILE_ALONE)
            share(item, path);
        else {
            if (!root->user && fchownat(item->opened, "", owner, group, AT_EMPTY_PATH))
                fail("give away", item->source);
            show(item, path, MS_NOSUID | MS_NODEV);
        }
        close(item->opened);
    }
}

// Below a root that is no mount (chroot) or cannot be left (an initial RAM disk), what is above can only be hidden.
static void enter(void) {
    if (chdir(BASE))
        fail("enter", BASE);
    if (syscall(SYS_pivot_root, ".", ".") == 0) {
        if (umount2(".", MNT_DETACH))
            fail("leave the old root", "");
    } else if (chroot(".")) {
        fail("change the root", "");
    }
    if (chdir("/"))
        fail("enter", "the new root");
}

void root_make(struct root *root, uid_t owner, gid_t group) {
    new_namespaces(root);
    open_sources(root);
    // Nothing that is mounted here is seen outside.
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) && errno != EINVAL) // EINVAL: the root is no mount
        fail("keep mounts to itself", "");
    umask(022);
    if (mount("tmpfs", BASE, "tmpfs", MS_NOSUID, "mode=0755"))
        fail("mount an empty root on", BASE);
    fill(root, owner, group);
    if (mount(NULL, BASE, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID, NULL))
        fail("protect", "the new root");
    enter();
}
