/* SPDX-License-Identifier: Apache-2.0 */
#include "builtin/archive.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "builtin/tar.h"

#define MOST_COMPLAINTS 20
#define AT_ONCE 65536

static struct tar_entry entry; /* its name is that of where we are */
static unsigned complaints;
static struct stat ours; /* /.vmtailor, which is not of the image */

static void complain(const char *why) {
    if (complaints++ < MOST_COMPLAINTS)
        fprintf(stderr, "archive: %s: %s\n", entry.name, why);
}

/* --- what is written --- */

static uint8_t out[AT_ONCE];
static size_t out_length;

static void flush(void) {
    for (size_t done = 0; done < out_length;) {
        ssize_t written = write(1, out + done, out_length - done);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            exit(1); /* nobody reads it any more */
        done += (size_t)written;
    }
    out_length = 0;
}

static void put(const void *data, size_t length) {
    const uint8_t *from = data;
    while (length > 0) {
        if (out_length == sizeof out)
            flush();
        size_t part = length < sizeof out - out_length ? length : sizeof out - out_length;
        memcpy(out + out_length, from, part);
        out_length += part;
        from += part;
        length -= part;
    }
}

static void put_zeros(uint64_t length) {
    static const uint8_t zeros[TAR_BLOCK];
    for (; length > 0; length -= length < TAR_BLOCK ? length : TAR_BLOCK)
        put(zeros, length < TAR_BLOCK ? (size_t)length : TAR_BLOCK);
}

static void put_head(char type, const struct stat *found, uint64_t size) {
    static uint8_t head[TAR_HEAD];
    entry.type = type;
    entry.mode = found->st_mode & 07777;
    entry.uid = found->st_uid;
    entry.gid = found->st_gid;
    entry.mtime = found->st_mtime;
    entry.size = size;
    bool device = type == TAR_CHARACTER || type == TAR_BLOCK_DEVICE;
    entry.major = device ? major(found->st_rdev) : 0;
    entry.minor = device ? minor(found->st_rdev) : 0;
    put(head, tar_head(head, &entry));
    entry.link[0] = '\0';
}

/* --- files of several names: the first one has the content, the others are links to it --- */

struct known {
    dev_t device;
    ino_t number;
    char *name; /* NULL: a free place */
};

static struct known *known;
static size_t known_room, known_count;

static struct known *place_of(struct known *table, size_t room, dev_t device, ino_t number) {
    size_t at = (size_t)((uint64_t)number * 0x9e3779b97f4a7c15u >> 20 ^ (uint64_t)device) & (room - 1);
    while (table[at].name != NULL && (table[at].device != device || table[at].number != number))
        at = (at + 1) & (room - 1);
    return &table[at];
}

static bool grow(void) {
    size_t room = known_room > 0 ? 2 * known_room : 64;
    struct known *table = calloc(room, sizeof *table);
    if (table == NULL)
        return false;
    for (size_t i = 0; i < known_room; i++)
        if (known[i].name != NULL)
            *place_of(table, room, known[i].device, known[i].number) = known[i];
    free(known);
    known = table;
    known_room = room;
    return true;
}

/* The name that this file was written under, or NULL: it is the first one. */
static const char *earlier_name(const struct stat *found) {
    if (found->st_nlink < 2 || (2 * known_count >= known_room && !grow()))
        return NULL;
    struct known *place = place_of(known, known_room, found->st_dev, found->st_ino);
    if (place->name != NULL)
        return place->name;
    *place = (struct known){found->st_dev, found->st_ino, strdup(entry.name)};
    known_count += place->name != NULL;
    return NULL;
}

/* --- what is read --- */

static void add_file(int folder, const char *base, int no_follow) {
    static uint8_t data[AT_ONCE];
    struct stat found;
    int fd = openat(folder, base, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | no_follow);
    if (fd < 0 || fstat(fd, &found) != 0 || !S_ISREG(found.st_mode)) {
        complain(fd < 0 ? strerror(errno) : "it changes while it is read");
        if (fd >= 0)
            close(fd);
        return;
    }
    uint64_t size = (uint64_t)found.st_size, left = size;
    put_head(TAR_FILE, &found, size);
    while (left > 0) {
        ssize_t got = read(fd, data, left < sizeof data ? (size_t)left : sizeof data);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            complain(got < 0 ? strerror(errno) : "it became shorter while it was read");
            break;
        }
        put(data, (size_t)got);
        left -= (uint64_t)got;
    }
    close(fd);
    put_zeros(left + (TAR_BLOCK - size % TAR_BLOCK) % TAR_BLOCK);
}

static int by_bytes(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The names in a folder, sorted; the list ends with a NULL. NULL when it cannot be read. */
static char **names_in(DIR *folder) {
    size_t count = 0, room = 0;
    char **names = NULL;
    for (;;) {
        if (count + 1 >= room) {
            room = room > 0 ? 2 * room : 16;
            char **larger = realloc(names, room * sizeof *names);
            if (larger == NULL)
                break;
            names = larger;
        }
        errno = 0;
        struct dirent *next = readdir(folder);
        if (next == NULL) {
            if (errno != 0)
                complain(strerror(errno));
            qsort(names, count, sizeof *names, by_bytes);
            names[count] = NULL;
            return names;
        }
        if (strcmp(next->d_name, ".") == 0 || strcmp(next->d_name, "..") == 0)
            continue;
        if ((names[count] = strdup(next->d_name)) == NULL)
            break;
        count++;
    }
    while (count > 0)
        free(names[--count]);
    free(names);
    return NULL;
}

/* The kernel's own files, which are no part of the container's: not those that are asked for by name. */
static bool is_kernels(int fd) {
    static const unsigned long KINDS[] = {
        0x9fa0 /* proc */,        0x62656572 /* sysfs */,   0x1cd1 /* devpts */,
        0x19800202 /* mqueue */,  0x27e0eb /* cgroup */,    0x63677270 /* cgroup2 */,
        0x64626720 /* debugfs */, 0x74726163 /* tracefs */, 0x73636673 /* securityfs */};
    struct statfs found;
    for (size_t i = 0; fstatfs(fd, &found) == 0 && i < sizeof KINDS / sizeof *KINDS; i++)
        if ((unsigned long)found.f_type == KINDS[i])
            return true;
    return false;
}

static void add(int folder, const char *base, int no_follow, dev_t around);

static void add_all_in(DIR *open_folder, dev_t around) {
    char **names = names_in(open_folder);
    size_t length = strlen(entry.name); /* ends with a slash */
    if (names == NULL)
        complain("no memory for its names");
    for (char **name = names; name != NULL && *name != NULL; name++) {
        if (length + strlen(*name) + 2 > sizeof entry.name)
            complain("the path is longer than 4095 bytes");
        else {
            strcpy(entry.name + length, *name);
            add(dirfd(open_folder), *name, O_NOFOLLOW, around);
            entry.name[length] = '\0';
        }
        free(*name);
    }
    free(names);
}

static void add_folder(int folder, const char *base, int no_follow, dev_t around) {
    struct stat found;
    int fd = openat(folder, base, O_RDONLY | O_DIRECTORY | O_CLOEXEC | no_follow);
    DIR *open_folder = fd >= 0 && fstat(fd, &found) == 0 ? fdopendir(fd) : NULL;
    if (open_folder == NULL) {
        complain(strerror(errno));
        if (fd >= 0)
            close(fd);
        return;
    }
    strcat(entry.name, "/");
    put_head(TAR_FOLDER, &found, 0);
    bool asked = around == 0;
    bool own = ours.st_nlink > 0 && found.st_dev == ours.st_dev && found.st_ino == ours.st_ino;
    if (asked || (!own && (found.st_dev == around || !is_kernels(fd))))
        add_all_in(open_folder, found.st_dev);
    closedir(open_folder);
}

static void add_link(int folder, const char *base, const struct stat *found) {
    ssize_t length = readlinkat(folder, base, entry.link, sizeof entry.link - 1);
    if (length < 0) {
        complain(strerror(errno));
        return;
    }
    entry.link[length] = '\0';
    put_head(TAR_LINK, found, 0);
}

/* Add what has this name in a folder, under the name that `entry` has. `around`: the device that its folder is on, 0
 * when there is none. */
static void add(int folder, const char *base, int no_follow, dev_t around) {
    struct stat found;
    if (fstatat(folder, base, &found, no_follow ? AT_SYMLINK_NOFOLLOW : 0) != 0) {
        complain(strerror(errno));
        return;
    }
    if (S_ISDIR(found.st_mode)) {
        add_folder(folder, base, no_follow, around);
        return;
    }
    const char *earlier = earlier_name(&found);
    if (earlier != NULL) {
        strcpy(entry.link, earlier);
        put_head(TAR_HARD_LINK, &found, 0);
    } else if (S_ISREG(found.st_mode))
        add_file(folder, base, no_follow);
    else if (S_ISLNK(found.st_mode))
        add_link(folder, base, &found);
    else if (S_ISCHR(found.st_mode))
        put_head(TAR_CHARACTER, &found, 0);
    else if (S_ISBLK(found.st_mode))
        put_head(TAR_BLOCK_DEVICE, &found, 0);
    else if (S_ISFIFO(found.st_mode))
        put_head(TAR_FIFO, &found, 0);
    /* A socket is of the program that made it. */
}

int archive(const char *path, bool follow) {
    char whole[TAR_NAME];
    struct rlimit files;
    size_t length = strlen(path);
    if (length == 0 || length >= sizeof whole) {
        fprintf(stderr, "archive: %s\n", length == 0 ? "no path was given" : "the path is longer than 4095 bytes");
        return 1;
    }
    strcpy(whole, path);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files); /* each folder that we are in is open */
    }
    if (lstat("/.vmtailor", &ours) != 0)
        ours.st_nlink = 0;
    bool slash = whole[length - 1] == '/';
    while (length > 1 && whole[length - 1] == '/')
        whole[--length] = '\0';
    const char *last = strrchr(whole, '/') != NULL ? strrchr(whole, '/') + 1 : whole;
    bool inside = *last == '\0' || strcmp(last, ".") == 0 || strcmp(last, "..") == 0;
    strcpy(entry.name, inside ? "." : last);
    add(AT_FDCWD, whole, follow || slash || inside ? 0 : O_NOFOLLOW, 0);
    put_zeros(2 * TAR_BLOCK);
    flush();
    if (complaints > MOST_COMPLAINTS)
        fprintf(stderr, "archive: %u more of this kind\n", complaints - MOST_COMPLAINTS);
    return complaints > 0;
}
