/* SPDX-License-Identifier: Apache-2.0 */
#include "builtin/stats.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "common/clock.h"
#include "init/base/read_file.h"

#define MOST 8192
#define LAST_PID 32768
#define MOST_COMMAND 256
#define KERNEL_THREAD 0x00200000u /* PF_KTHREAD among the flags of /proc/PID/stat */

static void say(const char *key, unsigned long long value) {
    printf("%s %llu%c", key, value, 0);
}

/* Bytes that could be had without taking anything from a program. */
static unsigned long long available(const struct sysinfo *now) {
    unsigned long long kilobytes;
    char *known = read_file("/proc/meminfo", MOST, NULL);
    char *line = known != NULL ? strstr(known, "\nMemAvailable:") : NULL;
    bool told = line != NULL && sscanf(line, " MemAvailable: %llu", &kilobytes) == 1;
    free(known);
    return told ? 1024 * kilobytes : (unsigned long long)(now->freeram + now->bufferram) * now->mem_unit;
}

/* A process as /proc/PID/stat tells it; 'name' lies in 'line', which is the caller's to free. */
struct process {
    char *line, *name, state;
    int parent;
    unsigned long user, system; /* ticks */
    long pages;
};

/* Whether 'pid' is a program beside this one: not gone by now, and not one of the kernel's own threads. */
static bool program_read(const char *pid, struct process *read) {
    char path[64];
    unsigned flags;
    snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    read->line = read_file(path, MOST, NULL);
    read->name = read->line != NULL ? strchr(read->line, '(') : NULL;
    char *end = read->name != NULL ? strrchr(read->name, ')') : NULL;
    if (end == NULL || atoi(pid) == getpid())
        return false;
    *end = '\0';
    read->name++;
    return sscanf(end + 1, " %c %d %*d %*d %*d %*d %u %*u %*u %*u %*u %lu %lu %*d %*d %*d %*d %*d %*d %*u %*u %ld",
                  &read->state, &read->parent, &flags, &read->user, &read->system, &read->pages) == 6 &&
           (flags & KERNEL_THREAD) == 0;
}

static bool is_number(const char *name) {
    return name[0] >= '0' && name[0] <= '9';
}

/* Programs beside this one. Without /proc those with a session count: the kernel's own threads have none. */
static unsigned processes(void) {
    unsigned count = 0;
    DIR *folder = opendir("/proc");
    for (struct dirent *next; folder != NULL && (next = readdir(folder)) != NULL;)
        if (is_number(next->d_name)) {
            struct process read;
            count += program_read(next->d_name, &read);
            free(read.line);
        }
    if (folder != NULL)
        closedir(folder);
    if (count > 0)
        return count;
    for (pid_t pid = 1; pid <= LAST_PID; pid++)
        count += pid != getpid() && getsid(pid) > 0;
    return count;
}

int stats(void) {
    struct sysinfo now;
    if (sysinfo(&now) != 0) {
        perror("stats: sysinfo");
        return 1;
    }
    unsigned long long total = (unsigned long long)now.totalram * now.mem_unit, left = available(&now);
    printf("vmtailor 1%c", 0);
    say("memory-total", total);
    say("memory-used", left < total ? total - left : 0);
    say("memory-available", left);
    say("processes", processes());
    say("uptime-ms", now_ns() / 1000000u);
    return fflush(stdout) == 0 ? 0 : 1;
}

/* What it was started with, or its name in brackets. */
static void command_of(const char *pid, const char *name, char text[MOST_COMMAND]) {
    char path[64];
    size_t length = 0;
    snprintf(path, sizeof path, "/proc/%.20s/cmdline", pid);
    char *words = read_file(path, MOST, &length);
    length = length < MOST_COMMAND ? length : MOST_COMMAND - 1;
    if (words != NULL && length > 0) {
        while (length > 0 && words[length - 1] == '\0')
            length--;
        for (size_t i = 0; i < length; i++)
            text[i] = words[i] == '\0' ? ' ' : words[i];
        text[length] = '\0';
    } else
        snprintf(text, MOST_COMMAND, "[%s]", name);
    free(words);
}

static void say_process(const char *pid) {
    char path[64], command[MOST_COMMAND];
    struct process read;
    struct stat owner;
    snprintf(path, sizeof path, "/proc/%.20s", pid);
    if (program_read(pid, &read) && stat(path, &owner) == 0) {
        command_of(pid, read.name, command);
        printf("process %s %d %u %c %llu %llu %s%c", pid, read.parent, (unsigned)owner.st_uid, read.state,
               (unsigned long long)(read.user + read.system) * 1000 / (unsigned long long)sysconf(_SC_CLK_TCK),
               (unsigned long long)read.pages * (unsigned long long)sysconf(_SC_PAGESIZE), command, 0);
    }
    free(read.line);
}

int top(void) {
    DIR *folder = opendir("/proc");
    struct stat self;
    if (folder == NULL || stat("/proc/self/stat", &self) != 0) {
        fprintf(stderr, "top: the kernel has no /proc (PROC_FS), which tells processes\n");
        return 1;
    }
    printf("vmtailor 1%c", 0);
    for (struct dirent *next; (next = readdir(folder)) != NULL;)
        if (is_number(next->d_name))
            say_process(next->d_name);
    closedir(folder);
    return fflush(stdout) == 0 ? 0 : 1;
}
