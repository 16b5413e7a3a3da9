/* SPDX-License-Identifier: Apache-2.0 */
#include "init/container/surroundings.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "init/base/power_off.h"
#include "init/container/program.h"
#include "init/settings/settings.h"

#define SHM "/dev/shm"
#define SHM_FLAGS (MS_NOSUID | MS_NODEV | MS_NOEXEC)

/* Cut the next word off. */
static char *next_word(char **text) {
    char *word = *text, *space = strchr(word, ' ');
    *text = space != NULL ? space + 1 : word + strlen(word);
    if (space != NULL)
        *space = '\0';
    return word;
}

/* Below a folder, or the folder itself. */
static bool below(const char *path, const char *folder) {
    size_t length = strlen(folder);
    return strncmp(path, folder, length) == 0 && (path[length] == '\0' || path[length] == '/');
}

/* An image's links must not lead a mount over our own programs, or over what the kernel tells. */
static bool forbidden(const char *real) {
    return strcmp(real, "/") == 0 || strcmp(real, "/dev") == 0 || below(real, "/proc") || below(real, "/sys") ||
           below(real, "/.vmtailor");
}

static void mount_tmpfs(char *record) {
    char real[PATH_MAX], options[512];
    unsigned long flags = strtoul(next_word(&record), NULL, 10);
    const char *told = next_word(&record), *path = record;
    struct stat found;
    bool there = stat(path, &found) == 0;
    make_directories(path);
    if (realpath(path, real) == NULL)
        fatal("", "--tmpfs: %s: %s", path, strerror(errno));
    if (forbidden(real))
        fatal("", "--tmpfs: %s leads to %s, which must stay", path, real);
    /* A folder of the image keeps its mode, unless the run says one. */
    int length = there ? snprintf(options, sizeof options, "mode=%04o", (unsigned)found.st_mode & 07777) : 0;
    options[length] = '\0';
    if (strcmp(told, "-") != 0)
        snprintf(options + length, sizeof options - (size_t)length, "%s%s", length > 0 ? "," : "", told);
    if (mount("tmpfs", real, "tmpfs", flags, options) != 0)
        fatal(errno == ENODEV ? "TMPFS" : "", "--tmpfs: mount(tmpfs on %s, %s): %s", real, options, strerror(errno));
}

void surroundings_tmpfs(void) {
    const struct surroundings *more = settings.surroundings;
    char options[64];
    if (more == NULL)
        return;
    if (more->shm != NULL) {
        snprintf(options, sizeof options, "mode=1777,size=%.20s", more->shm);
        if (mount(NULL, SHM, NULL, MS_REMOUNT | SHM_FLAGS, options) != 0)
            fatal("TMPFS", "--shm-size: mount(%s): %s", SHM, strerror(errno));
    }
    for (size_t i = 0; i < more->tmpfs.count; i++)
        mount_tmpfs(more->tmpfs.items[i]);
}

void surroundings_read_only(void) {
    const struct surroundings *more = settings.surroundings;
    if (more == NULL || !more->read_only)
        return;
    struct stat root, found;
    if (stat("/", &root) != 0)
        fatal("", "--read-only: stat(/): %s", strerror(errno));
    make_directories(settings.cwd);
    for (size_t i = 0; i < settings.volumes.count; i++) {
        const char *path = settings.volumes.items[i];
        if (stat(path, &found) == 0 && found.st_dev != root.st_dev)
            continue; /* a mount of its own, which must come off at the end */
        if (mount(path, path, NULL, MS_BIND, NULL) != 0)
            fatal("", "--read-only: mount(the volume %s): %s", path, strerror(errno));
    }
    if (mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL) != 0)
        fatal("", "--read-only: mount(/ read-only): %s", strerror(errno));
}
