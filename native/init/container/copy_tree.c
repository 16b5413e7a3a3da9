/* SPDX-License-Identifier: Apache-2.0 */
#include "init/container/copy_tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "common/large.h"

#define DEEPEST 128
#define AT_ONCE (1 << 16)

LARGE char copy_tree_buffer[AT_ONCE];

/* The rights that a program has by its file; other attributes stay behind, as with engines. */
static bool copy_capabilities(int from, int to) {
    static const char name[] = "security.capability";
    ssize_t size = fgetxattr(from, name, copy_tree_buffer, sizeof copy_tree_buffer);
    return size <= 0 || fsetxattr(to, name, copy_tree_buffer, (size_t)size, 0) == 0;
}

static bool copy_data(int from, int to) {
    ssize_t got;
    while ((got = read(from, copy_tree_buffer, sizeof copy_tree_buffer)) > 0)
        for (ssize_t done = 0, put; done < got; done += put) {
            put = write(to, copy_tree_buffer + done, (size_t)(got - done));
            if (put <= 0)
                return false;
        }
    return got == 0;
}

/* The owner first: a change of it takes setuid and capabilities away. */
static bool like(int to, int source, const struct stat *found) {
    const struct timespec times[2] = {found->st_atim, found->st_mtim};
    return fchown(to, found->st_uid, found->st_gid) == 0 && fchmod(to, found->st_mode & 07777) == 0 &&
           (!S_ISREG(found->st_mode) || copy_capabilities(source, to)) && futimens(to, times) == 0;
}

static bool copy_file(int from, int to, const char *name, const struct stat *found) {
    int source = openat(from, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    int target = openat(to, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    bool done = source >= 0 && target >= 0 && copy_data(source, target) && like(target, source, found);
    int error = errno;
    if (source >= 0)
        close(source);
    if (target >= 0)
        close(target);
    errno = error;
    return done;
}

static bool copy_link(int from, int to, const char *name, const struct stat *found) {
    char target[PATH_MAX];
    ssize_t length = readlinkat(from, name, target, sizeof target - 1);
    if (length < 0)
        return false;
    target[length] = '\0';
    return symlinkat(target, to, name) == 0 &&
           fchownat(to, name, found->st_uid, found->st_gid, AT_SYMLINK_NOFOLLOW) == 0;
}

static bool copy_special(int to, const char *name, const struct stat *found) {
    if (S_ISSOCK(found->st_mode))
        return true;
    return mknodat(to, name, found->st_mode, found->st_rdev) == 0 &&
           fchownat(to, name, found->st_uid, found->st_gid, AT_SYMLINK_NOFOLLOW) == 0;
}

static bool copy_folder(int from, int to, const struct stat *found, int depth);

static bool copy_below(int from, int to, const char *name, const struct stat *found, int depth) {
    int source = openat(from, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), target = -1;
    if (source >= 0 && mkdirat(to, name, 0700) == 0)
        target = openat(to, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (target < 0) {
        if (source >= 0)
            close(source);
        return false;
    }
    bool done = copy_folder(source, target, found, depth + 1); /* closes the source */
    close(target);
    return done;
}

static bool copy_one(int from, int to, const char *name, dev_t device, int depth) {
    struct stat found;
    if (fstatat(from, name, &found, AT_SYMLINK_NOFOLLOW) != 0)
        return false;
    if (S_ISDIR(found.st_mode))
        return found.st_dev != device || copy_below(from, to, name, &found, depth);
    if (S_ISREG(found.st_mode))
        return copy_file(from, to, name, &found);
    return S_ISLNK(found.st_mode) ? copy_link(from, to, name, &found) : copy_special(to, name, &found);
}

static bool copy_folder(int from, int to, const struct stat *found, int depth) {
    DIR *list = depth < DEEPEST ? fdopendir(from) : NULL;
    if (list == NULL) {
        close(from);
        errno = depth < DEEPEST ? errno : ELOOP;
        return false;
    }
    bool done = true;
    for (struct dirent *entry; done && (errno = 0, entry = readdir(list)) != NULL;)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            done = copy_one(from, to, entry->d_name, found->st_dev, depth);
    done = done && errno == 0 && like(to, from, found);
    int error = errno;
    closedir(list);
    errno = error;
    return done;
}

bool copy_tree(const char *from, const char *to) {
    struct stat found;
    int source = open(from, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (source < 0)
        return errno == ENOENT;
    int target = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (target < 0 || fstat(source, &found) != 0) {
        close(source);
        return false;
    }
    bool done = copy_folder(source, target, &found, 0);
    close(target);
    return done;
}

static void remove_in(int folder, const char *name, int depth) {
    if (unlinkat(folder, name, 0) == 0 || depth == DEEPEST)
        return;
    int inner = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *list = inner < 0 ? NULL : fdopendir(inner);
    if (list == NULL)
        return;
    for (struct dirent *entry; (entry = readdir(list)) != NULL;)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            remove_in(inner, entry->d_name, depth + 1);
    closedir(list);
    unlinkat(folder, name, AT_REMOVEDIR);
}

void remove_tree(const char *path) {
    remove_in(AT_FDCWD, path, 0);
}
