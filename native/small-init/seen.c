/* SPDX-License-Identifier: Apache-2.0 */
#include "small-init/seen.h"

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "small-init/say.h"
#include "small-init/watch.h"

#define SYS WATCH "/sys"
#define DEEPEST 24
#define MOST 65536 /* of what was said already; a power of two */

static uint64_t said[MOST];
static unsigned held;
static seen_sink *tell;

/* Whether this is new; the table never gets full. */
static bool is_new(const char *kind, const char *one, const char *two) {
    uint64_t hash = 1469598103934665603u; /* FNV-1a */
    for (const char *part = kind; part; part = part == kind ? one : part == one ? two : NULL) {
        for (const char *at = part; *at; at++)
            hash = (hash ^ (unsigned char)*at) * 1099511628211u;
        hash = (hash ^ 0xff) * 1099511628211u;
    }
    hash |= 1;
    for (unsigned at = hash & (MOST - 1);; at = (at + 1) & (MOST - 1)) {
        if (said[at] == hash)
            return false;
        if (!said[at]) {
            if (held >= MOST / 2)
                return false;
            said[at] = hash;
            held++;
            return true;
        }
    }
}

static void say_new(const char *kind, const char *one, const char *two) {
    if (*two && is_new(kind, one, two))
        tell(kind, one, two);
}

bool seen_open(seen_sink *sink) {
    tell = sink;
    mkdir(SYS, 0700);
    /* There is one sysfs for all: mounted read-only, the system's own /sys would be, too. So only this place is. */
    if (mount("sysfs", SYS, "sysfs", 0, NULL))
        return false;
    mount(NULL, SYS, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL);
    return true;
}

static void walk_devices(const char *path, int depth) {
    char below[512], text[512];
    DIR *folder = depth > DEEPEST ? NULL : opendir(path);
    if (!folder)
        return;
    for (struct dirent *one; (one = readdir(folder));) {
        if (one->d_name[0] == '.' || (size_t)snprintf(below, sizeof below, "%s/%s", path, one->d_name) >= sizeof below)
            continue;
        if (one->d_type == DT_DIR) {
            walk_devices(below, depth + 1);
        } else if (!strcmp(one->d_name, "modalias")) {
            read_text(below, text, sizeof text);
            text[strcspn(text, "\n")] = '\0';
            say_new("device", path + strlen(SYS), text);
        }
    }
    closedir(folder);
}

static void walk_sections(const char *module) {
    char path[512], text[64], both[512];
    snprintf(path, sizeof path, SYS "/module/%s/sections", module);
    DIR *folder = opendir(path);
    if (!folder)
        return;
    for (struct dirent *one; (one = readdir(folder));) {
        if (one->d_type != DT_REG ||
            (size_t)snprintf(path, sizeof path, SYS "/module/%s/sections/%s", module, one->d_name) >= sizeof path)
            continue;
        read_text(path, text, sizeof text);
        text[strcspn(text, "\n")] = '\0';
        if ((size_t)snprintf(both, sizeof both, "%s %s", one->d_name, text) < sizeof both)
            tell("section", module, both);
    }
    closedir(folder);
}

static void walk_modules(void) {
    static char line[1024];
    char name[64], rest[128];
    FILE *file = fopen("/proc/modules", "re");
    if (!file)
        return;
    while (fgets(line, sizeof line, file)) {
        unsigned long size, base;
        if (sscanf(line, "%63s %lu %*s %*s %*s %lx", name, &size, &base) != 3)
            continue;
        snprintf(rest, sizeof rest, "%lu 0x%lx", size, base);
        if (is_new("module", name, rest)) {
            tell("module", name, rest);
            walk_sections(name);
        }
    }
    fclose(file);
}

void seen_look(void) {
    walk_devices(SYS "/devices", 0);
    walk_modules();
}
