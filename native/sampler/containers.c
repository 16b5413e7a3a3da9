/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Containers are found by the names that engines give their control groups: docker-ID.scope, libpod-ID.scope,
 * cri-containerd-ID.scope, a folder called ID (the engines' own driver), lxc.payload.NAME, machine-NAME.scope. The tree
 * is walked when its number of groups has changed, when a container has gone, and every LOOKS samples; the files of a
 * container stay open between samples.
 */
#include "sampler/containers.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sampler/text.h"

/* A test plays another tree. */
#ifndef VT_GROUPS
#define VT_GROUPS "/sys/fs/cgroup"
#endif
#define MOST 128  /* containers; five open files each */
#define DEEPEST 8 /* levels of the tree */
#define MOST_GROUPS 4096
#define MOST_LOOKS 3 /* at a container's first process */
#define LOOKS 16     /* samples between two walks where nothing hints at a change */
#define ID 64        /* hexadecimal digits of an engine's identifier */
#define SHORT_ID 12  /* as engines print them */

enum file { CPU, CURRENT, MEMORY, IO, PIDS, FILES };
static const char *const files[FILES] = {"cpu.stat", "memory.current", "memory.stat", "io.stat", "pids.current"};

static struct container {
    char id[64], engine[24], path[512];
    int folder, fds[FILES];
    int pid;          /* of its first process, 0: not known yet */
    bool own_network; /* not the machine's */
    int looks;        /* at what its first process is: engines begin as themselves */
    bool seen;
} containers[MOST];
static unsigned count, visited, since_walk;
static bool lost = true; /* walk at the next sample */
static uint64_t groups_before;
static int tree_fd = -1;
static ino_t machine_network;

/* --- names --- */

static bool is_identifier(const char *text) {
    return strspn(text, "0123456789abcdef") == ID && text[ID] == '\0';
}

/* Is this a container's group? Then its identifier and its engine, as far as the name tells them. */
static bool is_container(const char *name, char *id, char *engine) {
    static const struct { const char *start, *engine; } named[] = {{"lxc.payload.", "lxc"}, {"machine-", "machine"}};
    char bare[256];
    snprintf(bare, sizeof bare, "%s", name);
    char *end = strstr(bare, ".scope");
    if (end != NULL && end[6] == '\0')
        *end = '\0';
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        size_t size = strlen(named[i].start);
        if (strncmp(bare, named[i].start, size) == 0 && bare[size] != '\0') {
            plain_name(id, 64, bare + size);
            strcpy(engine, named[i].engine);
            return true;
        }
    }
    char *last = strrchr(bare, '-');
    if (!is_identifier(last != NULL ? last + 1 : bare) || strstr(bare, "conmon") != NULL)
        return false;
    snprintf(id, 64, "%.*s", SHORT_ID, last != NULL ? last + 1 : bare);
    if (last == NULL)
        strcpy(engine, "-");
    else {
        *last = '\0';
        plain_name(engine, 24, bare);
    }
    return true;
}

/* --- the tree --- */

static void add(int folder, const char *path, const char *id, const char *engine) {
    for (unsigned i = 0; i < count; i++)
        if (strcmp(containers[i].path, path) == 0) {
            containers[i].seen = true;
            return;
        }
    int own = count < MOST ? openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (own < 0)
        return;
    struct container *new = &containers[count++];
    memset(new, 0, sizeof *new);
    snprintf(new->id, sizeof new->id, "%s", id);
    snprintf(new->engine, sizeof new->engine, "%s", engine);
    snprintf(new->path, sizeof new->path, "%s", path);
    new->folder = own;
    new->seen = true;
    for (int i = 0; i < FILES; i++)
        new->fds[i] = -1;
}

static void drop(unsigned number) {
    for (int i = 0; i < FILES; i++)
        if (containers[number].fds[i] >= 0)
            close(containers[number].fds[i]);
    close(containers[number].folder);
    containers[number] = containers[--count];
}

/* Takes `fd`. What is in a container's group is the container's. */
static void walk(int fd, const char *path, int depth) {
    DIR *folder = fdopendir(fd);
    struct dirent *entry;
    if (folder == NULL) {
        close(fd);
        return;
    }
    while ((entry = readdir(folder)) != NULL && visited < MOST_GROUPS) {
        char id[64], engine[24], below[512];
        if (entry->d_type != DT_DIR || entry->d_name[0] == '.')
            continue;
        if ((size_t)snprintf(below, sizeof below, "%s/%s", path, entry->d_name) >= sizeof below)
            continue;
        int inner = openat(dirfd(folder), entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (inner < 0)
            continue;
        visited++;
        if (is_container(entry->d_name, id, engine)) {
            add(inner, below, id, engine);
            close(inner);
        } else if (depth < DEEPEST)
            walk(inner, below, depth + 1);
        else
            close(inner);
    }
    closedir(folder);
}

static void look_again(void) {
    int root = open(VT_GROUPS, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return;
    for (unsigned i = 0; i < count; i++)
        containers[i].seen = false;
    visited = 0;
    walk(root, "", 1);
    for (unsigned i = count; i-- > 0;)
        if (!containers[i].seen)
            drop(i);
    lost = false;
    since_walk = 0;
}

/* --- a container --- */

/* The first process of a group, or of one below it: engines may put a container's processes one deeper. */
static int first_process(int folder, int depth) {
    char *text = file_once(folder, "cgroup.procs");
    int pid = text != NULL ? atoi(text) : 0;
    if (pid > 0 || depth == 0)
        return pid > 0 ? pid : 0;
    int again = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *inside = again >= 0 ? fdopendir(again) : NULL;
    struct dirent *entry;
    while (inside != NULL && pid <= 0 && (entry = readdir(inside)) != NULL) {
        if (entry->d_type != DT_DIR || entry->d_name[0] == '.')
            continue;
        int inner = openat(dirfd(inside), entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (inner < 0)
            continue;
        pid = first_process(inner, depth - 1);
        close(inner);
    }
    if (inside != NULL)
        closedir(inside);
    return pid > 0 ? pid : 0;
}

static ino_t network_of(const char *process) {
    char path[64];
    struct stat found;
    snprintf(path, sizeof path, "/proc/%s/ns/net", process);
    return stat(path, &found) == 0 ? found.st_ino : 0;
}

static void meet(struct container *one) {
    char process[16], path[64], command[32] = "?";
    one->pid = first_process(one->folder, 2);
    if (one->pid == 0)
        return;
    snprintf(process, sizeof process, "%d", one->pid);
    if (machine_network == 0)
        machine_network = network_of("self");
    ino_t own = network_of(process);
    one->own_network = own != 0 && own != machine_network;
    snprintf(path, sizeof path, "/proc/%s/comm", process);
    char *text = file_once(AT_FDCWD, path);
    if (text != NULL)
        plain_name(command, sizeof command, text);
    out_line("named %s %s %s\n", one->id, one->engine, command);
    one->looks++;
}

/* Sums of "8:0 rbytes=1 wbytes=2 rios=3 wios=4 …", a line for each disk. */
static void disk_sums(char *text, uint64_t sums[4]) {
    static const char *const keys[] = {" rbytes=", " wbytes=", " rios=", " wios="};
    memset(sums, 0, 4 * sizeof *sums);
    for (int i = 0; i < 4; i++)
        for (char *at = text; (at = strstr(at, keys[i])) != NULL;) {
            uint64_t value;
            at += strlen(keys[i]);
            if (next_number(&at, &value))
                sums[i] += value;
        }
}

/* All interfaces of its own but the loopback. */
static bool network_sums(struct container *one, uint64_t *received, uint64_t *sent) {
    char path[64];
    *received = *sent = 0;
    if (!one->own_network)
        return false;
    snprintf(path, sizeof path, "/proc/%d/net/dev", one->pid);
    char *text = file_once(AT_FDCWD, path);
    if (text == NULL) {
        one->pid = 0; /* its first process has ended; there may be another */
        return false;
    }
    for (char *line = text; line != NULL && *line != '\0'; line = strchr(line, '\n')) {
        uint64_t values[9];
        line += *line == '\n';
        char *begin = line + strspn(line, " "), *at = begin + strcspn(begin, ":\n");
        if (*at != ':' || strncmp(begin, "lo:", 3) == 0)
            continue;
        at++;
        bool whole = true;
        for (size_t i = 0; whole && i < sizeof values / sizeof *values; i++)
            whole = next_number(&at, &values[i]);
        if (whole) {
            *received += values[0];
            *sent += values[8];
        }
    }
    return true;
}

static char *file_of(struct container *one, enum file file) {
    return file_again(&one->fds[file], one->folder, files[file]);
}

static uint64_t only_number(char *text) {
    uint64_t value;
    return text != NULL && next_number(&text, &value) ? value : UNKNOWN;
}

static void sample(struct container *one) {
    static const char *const times[] = {"usage_usec", "user_usec", "system_usec", "throttled_usec"};
    static const char *const uses[] = {"anon", "file", "inactive_file", "kernel"};
    uint64_t sums[4], received, sent;
    if (one->pid == 0 || one->looks < MOST_LOOKS)
        meet(one);
    char *text = file_of(one, CPU);
    if (text == NULL) {
        lost = true;
        return;
    }
    out_line("container %s", one->id);
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        out_number(number_of(text, times[i]));
    out_number(only_number(file_of(one, CURRENT)));
    text = file_of(one, MEMORY);
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++)
        out_number(text != NULL ? number_of(text, uses[i]) : UNKNOWN);
    out_number(only_number(file_of(one, PIDS)));
    text = file_of(one, IO);
    if (text != NULL)
        disk_sums(text, sums);
    for (int i = 0; i < 4; i++)
        out_number(text != NULL ? sums[i] : UNKNOWN);
    bool told = one->pid > 0 && network_sums(one, &received, &sent);
    out_number(told ? received : UNKNOWN);
    out_number(told ? sent : UNKNOWN);
    out_line("\n");
}

void containers_sample(void) {
    char *text = file_again(&tree_fd, AT_FDCWD, VT_GROUPS "/cgroup.stat");
    if (text == NULL) { /* not mounted yet, or of version 1 */
        if (access(VT_GROUPS "/cpu", F_OK) == 0 || access(VT_GROUPS "/memory", F_OK) == 0)
            out_line("note control-groups-1\n");
        return;
    }
    uint64_t groups = (number_of(text, "nr_descendants") << 32) + number_of(text, "nr_dying_descendants");
    if (lost || groups != groups_before || ++since_walk >= LOOKS)
        look_again();
    groups_before = groups;
    for (unsigned i = 0; i < count; i++)
        sample(&containers[i]);
}
