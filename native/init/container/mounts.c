/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the user mounts into the container. A record is "TYPE FLAGS SOURCE TARGET": `virtiofs`, `9p` a tag that the
 * machine shares, `ext4` the number of a disk, `tmpfs` nothing, and `place` is a folder that is made, and nothing on
 * it. FLAGS are joined by commas: ro, rw; file: SOURCE has the one file "file", which is mounted; copy: a volume that
 * is used for the first time begins as the image's folder; the others are tmpfs's own.
 */
#include "init/container/mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "init/base/disks.h"
#include "init/base/power_off.h"
#include "init/container/copy_tree.h"
#include "init/container/program.h"
#include "init/settings/settings.h"

#define BESIDE "/dev/.mount"
#define NODE "/dev/.volume"
#define CONTENT BESIDE "/content"
#define UNFINISHED BESIDE "/unfinished"
#define LONGEST 4096

struct wanted {
    const char *type, *source, *target;
    char options[256]; /* tmpfs's */
    bool read_only, file, copy;
    unsigned long flags;
};

static const struct {
    const char *name;
    unsigned long adds, removes;
} FLAGS[] = {
    {"ro", MS_RDONLY, 0},       {"rw", 0, MS_RDONLY},        {"noexec", MS_NOEXEC, 0}, {"exec", 0, MS_NOEXEC},
    {"nosuid", MS_NOSUID, 0},   {"suid", 0, MS_NOSUID},      {"nodev", MS_NODEV, 0},   {"dev", 0, MS_NODEV},
    {"noatime", MS_NOATIME, 0}, {"sync", MS_SYNCHRONOUS, 0},
};

static bool read_known(struct wanted *wanted, const char *flag) {
    for (size_t i = 0; i < sizeof FLAGS / sizeof *FLAGS; i++)
        if (strcmp(FLAGS[i].name, flag) == 0) {
            wanted->flags = (wanted->flags | FLAGS[i].adds) & ~FLAGS[i].removes;
            return true;
        }
    return false;
}

static void read_flags(struct wanted *wanted, char *flags) {
    bool memory = strcmp(wanted->type, "tmpfs") == 0;
    wanted->flags = memory ? MS_NOSUID | MS_NODEV | MS_NOEXEC : MS_NODEV;
    for (char *flag = strtok(flags, ","); flag != NULL; flag = strtok(NULL, ",")) {
        size_t held = strlen(wanted->options);
        if (strcmp(flag, "file") == 0)
            wanted->file = true;
        else if (strcmp(flag, "copy") == 0)
            wanted->copy = true;
        else if (read_known(wanted, flag))
            continue;
        else if (memory && held + strlen(flag) + 2 < sizeof wanted->options)
            sprintf(wanted->options + held, "%s%s", held > 0 ? "," : "", flag);
        else
            fatal("", "mount(%s): unknown flag '%s'", wanted->target, flag);
    }
    wanted->read_only = wanted->flags & MS_RDONLY;
}

/* Cut a record in place. */
static void read_record(struct wanted *wanted, char *record) {
    memset(wanted, 0, sizeof *wanted);
    char *parts[4] = {record};
    for (int i = 1; i < 4; i++) {
        char *space = strchr(parts[i - 1], ' ');
        if (space == NULL)
            fatal("", "a mount without a target");
        *space = '\0';
        parts[i] = space + 1;
    }
    wanted->type = parts[0];
    wanted->source = parts[2];
    wanted->target = parts[3];
    if (wanted->target[0] != '/' || strlen(wanted->target) >= LONGEST)
        fatal("", "mount(%.80s): not an absolute path", wanted->target);
    read_flags(wanted, parts[1]);
    if (strcmp(wanted->type, "9p") == 0)
        /* Pages of a file are kept while it is open, without which none can be mapped for writing. */
        strcpy(wanted->options, "trans=virtio,version=9p2000.L,cache=mmap,msize=131072");
}

static const char *symbol_of(const char *type) {
    return strcmp(type, "virtiofs") == 0 ? "VIRTIO_FS"
           : strcmp(type, "9p") == 0     ? "9P_FS"
           : strcmp(type, "ext4") == 0   ? "EXT4_FS"
                                         : "TMPFS";
}

static void do_mount(const struct wanted *wanted, const char *source, const char *where, unsigned long flags) {
    if (strcmp(source, "-") == 0)
        source = wanted->type;
    const char *options = wanted->options[0] != '\0' ? wanted->options : NULL;
    if (mount(source, where, wanted->type, flags, options) != 0)
        fatal(errno == ENODEV ? symbol_of(wanted->type) : "", "mount(%s on %s): %s", wanted->type, wanted->target,
              strerror(errno));
}

/* A place for it, as engines make it. */
static void make_target(const struct wanted *wanted) {
    struct stat found;
    char folder[LONGEST];
    if (!wanted->file) {
        make_directories(wanted->target);
        return;
    }
    if (stat(wanted->target, &found) == 0)
        return;
    snprintf(folder, sizeof folder, "%s", wanted->target);
    *strrchr(folder, '/') = '\0';
    make_directories(folder);
    int fd = open(wanted->target, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0)
        fatal("", "open(%s, to mount a file there): %s", wanted->target, strerror(errno));
    close(fd);
}

static void beside_make(void) {
    if (mkdir(BESIDE, 0700) != 0 && errno != EEXIST)
        fatal("", "mkdir(%s): %s", BESIDE, strerror(errno));
}

/* Put what is mounted beside at its place, and leave it there alone. */
static void place(const struct wanted *wanted, const char *from) {
    if (mount(from, wanted->target, NULL, MS_BIND, NULL) != 0)
        fatal("", "mount(%s): %s", wanted->target, strerror(errno));
    if (wanted->read_only && mount(NULL, wanted->target, NULL, MS_REMOUNT | MS_BIND | wanted->flags, NULL) != 0)
        fatal("", "mount(%s read-only): %s", wanted->target, strerror(errno));
    umount2(BESIDE, MNT_DETACH);
    rmdir(BESIDE);
}

/* The content lies in a folder of the volume, so that it begins empty, and appears whole or not at all. */
static void begin_volume(const struct wanted *wanted) {
    struct stat found;
    if (stat(CONTENT, &found) == 0)
        return;
    remove_tree(UNFINISHED); /* of a machine that was ended meanwhile */
    if (mkdir(UNFINISHED, 0755) != 0 || chmod(UNFINISHED, 0755) != 0)
        fatal("", "mkdir(in the volume at %s): %s", wanted->target, strerror(errno));
    if (wanted->copy && !copy_tree(wanted->target, UNFINISHED))
        fatal("", "copy(%s into its volume): %s", wanted->target, strerror(errno));
    sync();
    if (rename(UNFINISHED, CONTENT) != 0)
        fatal("", "rename(in the volume at %s): %s", wanted->target, strerror(errno));
}

static void mount_volume(struct wanted *wanted) {
    if (mknod(NODE, S_IFBLK | 0600, disk_number(atoi(wanted->source))) != 0)
        fatal("", "mknod(the volume of %s): %s", wanted->target, strerror(errno));
    beside_make();
    strcpy(wanted->options, "commit=1"); /* what a machine that is killed loses is what came last, in seconds */
    do_mount(wanted, NODE, BESIDE, MS_NODEV);
    unlink(NODE);
    begin_volume(wanted);
    place(wanted, CONTENT);
}

static void mount_file(const struct wanted *wanted) {
    beside_make();
    do_mount(wanted, wanted->source, BESIDE, wanted->flags);
    place(wanted, BESIDE "/file");
}

void mounts_make(void) {
    mode_t usual = umask(022);
    for (size_t i = 0; i < settings.mounts.count; i++) {
        struct wanted wanted;
        read_record(&wanted, settings.mounts.items[i]);
        make_target(&wanted);
        settings.mounts.items[i] = (char *)wanted.target; /* all that is asked of it later */
        if (strcmp(wanted.type, "place") == 0)
            continue;
        if (strcmp(wanted.type, "ext4") == 0)
            mount_volume(&wanted);
        else if (wanted.file)
            mount_file(&wanted);
        else if (strcmp(wanted.type, "virtiofs") == 0 || strcmp(wanted.type, "9p") == 0 ||
                 strcmp(wanted.type, "tmpfs") == 0)
            do_mount(&wanted, wanted.source, wanted.target, wanted.flags);
        else
            fatal("", "mount(%s): unknown type '%s'", wanted.target, wanted.type);
    }
    umask(usual);
}

void mounts_end(void) {
    for (size_t i = settings.mounts.count; i > 0; i--)
        umount2(settings.mounts.items[i - 1], 0);
}
