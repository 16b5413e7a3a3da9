/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each place that an entry names is looked for from the destination on, and no link that leads out of it is followed.
 * So what stands in the archive, and what the container's programs change meanwhile, reaches nothing outside of it.
 */
#include "builtin/extract.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <unistd.h>

#include "builtin/tar.h"

#define AT_ONCE 65536
#define MOST_LINKS 40
#define MOST_TIMES (4 << 20) /* bytes of folders' names whose times are set at the end */

static struct {
    int fd;              /* everything is below it */
    bool is_root;        /* it is the container's whole root: absolute links are right in it */
    char rename[256];    /* what the archive's only root is called; empty: entries keep their names */
    char top[256];       /* how the archive calls it */
    bool is_file, slash; /* there is a file of that name; it was said to be a folder */
    bool began;
} to;

static char place[2 * TAR_NAME]; /* the entry's name, clean, from the destination on; empty: that itself */

static bool fail(const char *name, const char *why) {
    fprintf(stderr, "extract: %s: %s\n", name, why);
    return false;
}

static bool failed(const char *name) {
    return fail(name, strerror(errno));
}

/* --- standard input --- */

static bool take(void *data, size_t length) {
    static uint8_t held[AT_ONCE];
    static size_t from, until;
    uint8_t *out = data;
    while (length > 0) {
        if (from == until) {
            ssize_t got = read(0, held, sizeof held);
            if (got < 0 && errno == EINTR)
                continue;
            if (got <= 0)
                return false;
            from = 0;
            until = (size_t)got;
        }
        size_t part = length < until - from ? length : until - from;
        memcpy(out, held + from, part);
        from += part;
        out += part;
        length -= part;
    }
    return true;
}

/* --- places --- */

/* Linux 5.6; its own header is not with every C library. */
#ifndef SYS_openat2
#define SYS_openat2 437
#endif
struct how {
    uint64_t flags, mode, resolve;
};
#define NO_MAGIC_LINKS 0x02
#define BENEATH 0x08
#define IN_ROOT 0x10

/* Without openat2: folder by folder, and no link at all. */
static int open_step_by_step(const char *path) {
    char name[256];
    int fd = dup(to.fd);
    while (fd >= 0 && *path != '\0') {
        size_t length = strcspn(path, "/");
        if (length >= sizeof name) {
            close(fd);
            errno = ENAMETOOLONG;
            return -1;
        }
        memcpy(name, path, length);
        name[length] = '\0';
        int next = openat(fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        int error = errno;
        close(fd);
        errno = error;
        fd = next;
        path += length + (path[length] == '/');
    }
    return fd;
}

static int open_folder(const char *path) {
    struct how how = {O_PATH | O_DIRECTORY | O_CLOEXEC, 0, NO_MAGIC_LINKS | (to.is_root ? IN_ROOT : BENEATH)};
    if (*path == '\0')
        return dup(to.fd);
    long fd = syscall(SYS_openat2, to.fd, path, &how, sizeof how);
    return fd < 0 && errno == ENOSYS ? open_step_by_step(path) : (int)fd;
}

/* The same, and whatever of it is missing is made. */
static int make_folder(char *path) {
    int fd = open_folder(path);
    if (fd >= 0 || errno != ENOENT)
        return fd;
    char *slash = strrchr(path, '/');
    int above = -1;
    if (slash != NULL) {
        *slash = '\0';
        above = make_folder(path);
        *slash = '/';
    } else
        above = dup(to.fd);
    if (above < 0)
        return -1;
    bool made = mkdirat(above, slash != NULL ? slash + 1 : path, 0755) == 0 || errno == EEXIST;
    int error = errno;
    close(above);
    errno = error;
    return made ? open_folder(path) : -1;
}

/* The folder that an entry is in, and its name there. Opened once for all that follow one another in it. */
static int folder_of(char *path, const char **base) {
    static char last[sizeof place];
    static int fd = -1;
    char *slash = strrchr(path, '/');
    *base = slash != NULL ? slash + 1 : path;
    if (slash != NULL)
        *slash = '\0';
    const char *wanted = slash != NULL ? path : "";
    if (fd < 0 || strcmp(wanted, last) != 0) {
        if (fd >= 0)
            close(fd);
        strcpy(last, wanted);
        fd = make_folder(last);
    }
    if (slash != NULL)
        *slash = '/';
    return fd;
}

/* A name of the archive, without what says nothing. Returns NULL, or why it is refused. */
static const char *clean(const char *name, char *out) {
    size_t length = 0;
    if (*name == '/')
        return "an absolute name";
    while (*name != '\0') {
        size_t part = strcspn(name, "/");
        if (part == 2 && memcmp(name, "..", 2) == 0)
            return "a name with '..' in it";
        if (part > 0 && (part != 1 || *name != '.')) {
            if (length > 0)
                out[length++] = '/';
            memcpy(out + length, name, part);
            length += part;
        }
        name += part + (name[part] == '/');
    }
    out[length] = '\0';
    return NULL;
}

/* Put the destination's name in place of the archive's root. */
static const char *renamed(char *path) {
    char rest[TAR_NAME];
    size_t length = strcspn(path, "/");
    if (to.rename[0] == '\0')
        return NULL;
    if (length != strlen(to.top) || memcmp(path, to.top, length) != 0)
        return "the archive has another root beside the first one, and the destination is no folder";
    strcpy(rest, path + length);
    sprintf(path, "%s%s", to.rename, rest);
    return NULL;
}

/* The first entry decides what the destination is. */
static const char *begin(const struct tar_entry *entry, const char *path) {
    size_t length = strcspn(path, "/");
    bool is_folder = entry->type == TAR_FOLDER || path[length] == '/';
    to.began = true;
    if (to.rename[0] == '\0')
        return NULL;
    if (to.is_file && is_folder)
        return "a folder cannot take the place of a file";
    if (to.slash && !is_folder)
        return "there is no such folder";
    if (length >= sizeof to.top)
        return strerror(ENAMETOOLONG);
    if (length > 0) {
        memcpy(to.top, path, length);
        return NULL;
    }
    /* Its root has no name: the destination is made, and the entries are put in it. */
    int made = mkdirat(to.fd, to.rename, 0755);
    int fd = made == 0 ? openat(to.fd, to.rename, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
    if (fd < 0)
        return strerror(errno);
    close(to.fd);
    to.fd = fd;
    to.rename[0] = '\0';
    return NULL;
}

/* --- entries --- */

/* Make room for what is no folder. */
static bool remove_old(int folder, const char *base) {
    if (unlinkat(folder, base, 0) == 0 || errno == ENOENT || errno == EBUSY)
        return true;
    if (errno == EISDIR || errno == EPERM) {
        struct stat found;
        if (fstatat(folder, base, &found, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(found.st_mode))
            return fail(place, "a folder is there, which only a folder can be laid over");
        errno = EPERM;
    }
    return failed(place);
}

static bool set_times(int folder, const char *base, int64_t mtime) {
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = (time_t)mtime}};
    return utimensat(folder, base, times, AT_SYMLINK_NOFOLLOW) == 0 || failed(place);
}

static bool owned(const struct tar_entry *entry) {
    return (entry->uid < UINT32_MAX && entry->gid < UINT32_MAX) || fail(place, "a user or group beyond 32 bits");
}

static bool set_owner(int folder, const char *base, const struct tar_entry *entry) {
    return fchownat(folder, base, (uid_t)entry->uid, (gid_t)entry->gid, AT_SYMLINK_NOFOLLOW) == 0 || failed(place);
}

static bool copy(int fd, uint64_t left) {
    static uint8_t data[AT_ONCE];
    uint64_t padding = (TAR_BLOCK - left % TAR_BLOCK) % TAR_BLOCK;
    while (left > 0) {
        size_t part = left < sizeof data ? (size_t)left : sizeof data;
        if (!take(data, part))
            return fail(place, "the archive ends early");
        for (size_t done = 0; done < part;) {
            ssize_t written = write(fd, data + done, part - done);
            if (written < 0 && errno == EINTR)
                continue;
            if (written <= 0)
                return failed(place);
            done += (size_t)written;
        }
        left -= part;
    }
    return take(data, (size_t)padding) || fail(place, "the archive ends early");
}

static bool put_file(int folder, const char *base, const struct tar_entry *entry) {
    struct stat found;
    if (!remove_old(folder, base))
        return false;
    /* What is mounted there stays, and gets the content. */
    int fd = openat(folder, base, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0600);
    if (fd < 0)
        return failed(place);
    bool done = fstat(fd, &found) == 0 && (S_ISREG(found.st_mode) || fail(place, "it is no file any more")) &&
                copy(fd, entry->size) && (fchown(fd, (uid_t)entry->uid, (gid_t)entry->gid) == 0 || failed(place)) &&
                (fchmod(fd, entry->mode) == 0 || failed(place)) && set_times(folder, base, entry->mtime);
    return (close(fd) == 0 || failed(place)) && done;
}

/* Folders' times, once nothing more is put in them: time, NUL-ended place. */
static char *times;
static size_t times_length;

static void set_time_later(int64_t mtime) {
    size_t length = strlen(place) + 1;
    if (times_length + sizeof mtime + length > MOST_TIMES || (times == NULL && (times = malloc(MOST_TIMES)) == NULL))
        return; /* they have today's */
    memcpy(times + times_length, &mtime, sizeof mtime);
    memcpy(times + times_length + sizeof mtime, place, length);
    times_length += sizeof mtime + length;
}

static bool set_all_times(void) {
    for (size_t at = 0; at < times_length;) {
        int64_t mtime;
        const char *base;
        memcpy(&mtime, times + at, sizeof mtime);
        strcpy(place, times + at + sizeof mtime);
        at += sizeof mtime + strlen(place) + 1;
        int folder = folder_of(place, &base);
        if (folder >= 0 && !set_times(folder, base, mtime))
            return false;
    }
    return true;
}

static bool put_folder(int folder, const char *base, const struct tar_entry *entry) {
    if (mkdirat(folder, base, 0700) != 0 && errno != EEXIST)
        return failed(place);
    int fd = openat(folder, base, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return fail(place, errno == ENOTDIR || errno == ELOOP ? "something else is there, which no folder can replace"
                                                              : strerror(errno));
    bool done = (fchown(fd, (uid_t)entry->uid, (gid_t)entry->gid) == 0 || failed(place)) &&
                (fchmod(fd, entry->mode) == 0 || failed(place));
    close(fd);
    set_time_later(entry->mtime);
    return done;
}

/* Does a link lead out of the destination, as far as its words tell? An absolute one is the container's own. */
static bool leads_out(const char *target) {
    int depth = 0;
    if (to.is_root || *target == '/')
        return false;
    for (const char *at = place; (at = strchr(at, '/')) != NULL; at++)
        depth++;
    while (*target != '\0') {
        size_t part = strcspn(target, "/");
        if (part == 2 && memcmp(target, "..", 2) == 0)
            depth--;
        else if (part > 0 && (part != 1 || *target != '.'))
            depth++;
        if (depth < 0)
            return true;
        target += part + (target[part] == '/');
    }
    return false;
}

static bool put_link(int folder, const char *base, const struct tar_entry *entry) {
    if (leads_out(entry->link))
        return fail(place, "a link that leads out of the destination");
    return remove_old(folder, base) && (symlinkat(entry->link, folder, base) == 0 || failed(place)) &&
           set_owner(folder, base, entry) && set_times(folder, base, entry->mtime);
}

/* To another entry, whose folder must be there: the link is to what has that name in it, never to where that leads. */
static bool put_hard_link(int folder, const char *base, const struct tar_entry *entry) {
    char target[sizeof place];
    const char *wrong = clean(entry->link, target);
    if (wrong == NULL)
        wrong = renamed(target);
    if (wrong != NULL || *target == '\0')
        return fail(place, wrong != NULL ? wrong : "a link to nothing");
    if (strcmp(target, place) == 0)
        return fail(place, "a link to itself");
    char *slash = strrchr(target, '/');
    if (slash != NULL)
        *slash = '\0';
    int other = open_folder(slash != NULL ? target : "");
    bool done = other >= 0
                    ? remove_old(folder, base) &&
                          (linkat(other, slash != NULL ? slash + 1 : target, folder, base, 0) == 0 || failed(place))
                    : failed(place);
    if (other >= 0)
        close(other);
    return done;
}

static bool put_node(int folder, const char *base, const struct tar_entry *entry) {
    mode_t kind = entry->type == TAR_FIFO ? S_IFIFO : entry->type == TAR_CHARACTER ? S_IFCHR : S_IFBLK;
    return remove_old(folder, base) &&
           (mknodat(folder, base, kind | entry->mode, makedev(entry->major, entry->minor)) == 0 || failed(place)) &&
           set_owner(folder, base, entry) && set_times(folder, base, entry->mtime);
}

static bool put_entry(const struct tar_entry *entry) {
    const char *base;
    if (place[0] == '\0') /* the destination itself stays what it is */
        return entry->type == TAR_FOLDER || fail(entry->name, "it has no name");
    int folder = folder_of(place, &base);
    if (folder < 0) {
        if (errno == EXDEV || errno == ELOOP || errno == ENOTDIR)
            return fail(place, "a link or a file stands where a folder must be");
        return failed(place);
    }
    if (!owned(entry))
        return false;
    switch (entry->type) {
    case TAR_FILE:
        return put_file(folder, base, entry);
    case TAR_FOLDER:
        return put_folder(folder, base, entry);
    case TAR_LINK:
        return put_link(folder, base, entry);
    case TAR_HARD_LINK:
        return put_hard_link(folder, base, entry);
    case TAR_CHARACTER:
    case TAR_BLOCK_DEVICE:
    case TAR_FIFO:
        return put_node(folder, base, entry);
    }
    return fail(place, "an entry of a kind that is not read");
}

/* --- the destination --- */

/* Where a link of the container leads, as often as there is one: what is not there yet, too. */
static bool follow_links(char path[TAR_NAME]) {
    char target[TAR_NAME], whole[2 * TAR_NAME];
    for (int links = 0; links < MOST_LINKS; links++) {
        ssize_t length = readlink(path, target, sizeof target - 1);
        if (length <= 0)
            return true;
        target[length] = '\0';
        char *slash = strrchr(path, '/');
        int folder = target[0] == '/' || slash == NULL ? 0 : (int)(slash - path) + 1;
        if (snprintf(whole, sizeof whole, "%.*s%s", folder, path, target) >= TAR_NAME)
            break;
        strcpy(path, whole);
    }
    errno = ELOOP;
    return false;
}

static bool open_destination(const char *path) {
    char whole[TAR_NAME];
    struct stat found, root;
    size_t length = strlen(path);
    if (length == 0 || length >= sizeof whole)
        return fail(length == 0 ? "the destination" : "its path", strerror(length == 0 ? ENOENT : ENAMETOOLONG));
    strcpy(whole, path);
    bool there = stat(path, &found) == 0;
    if (there && S_ISDIR(found.st_mode)) {
        to.fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        to.is_root = stat("/", &root) == 0 && root.st_dev == found.st_dev && root.st_ino == found.st_ino;
        return to.fd >= 0 || failed(path);
    }
    if (!there && errno != ENOENT)
        return failed(path);
    while (length > 1 && whole[length - 1] == '/') {
        to.slash = true;
        whole[--length] = '\0';
    }
    if (!follow_links(whole))
        return failed(path);
    char *slash = strrchr(whole, '/');
    const char *base = slash != NULL ? slash + 1 : whole;
    if (*base == '\0' || strlen(base) >= sizeof to.rename || strcmp(base, ".") == 0 || strcmp(base, "..") == 0)
        return fail(path, strerror(ENOENT));
    strcpy(to.rename, base);
    to.is_file = there;
    if (slash != NULL)
        slash[slash == whole] = '\0';
    to.fd = open(slash != NULL ? whole : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    return to.fd >= 0 || failed(path);
}

int extract(const char *path) {
    static struct tar_entry entry;
    if (!open_destination(path))
        return 1;
    for (;;) {
        const char *wrong = tar_next(&entry, take);
        if (wrong == NULL && entry.type == 0)
            break;
        if (wrong == NULL && (wrong = clean(entry.name, place)) == NULL && !to.began)
            wrong = begin(&entry, place);
        if (wrong == NULL)
            wrong = renamed(place);
        if (wrong != NULL) {
            fail(entry.name[0] != '\0' ? entry.name : "the archive", wrong);
            return 1;
        }
        if (!put_entry(&entry))
            return 1;
    }
    uint8_t rest[TAR_BLOCK];
    while (take(rest, sizeof rest)) {
    } /* whoever writes it is let finish */
    return !set_all_times();
}
