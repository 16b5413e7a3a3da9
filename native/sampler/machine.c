/* SPDX-License-Identifier: Apache-2.0 */
#include "sampler/machine.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "sampler/text.h"

#define SECTOR 512u
#define MOST_PROCESSORS 64
#define MOST_DISKS 32
#define MOST_INTERFACES 32
#define CPU_FIELDS 8 /* user nice system idle iowait irq softirq steal */

static int stat_fd = -1, load_fd = -1, memory_fd = -1, disks_fd = -1, network_fd = -1;

/* Ticks of the kernel's clock, in microseconds. */
static uint64_t microseconds(uint64_t ticks) {
    static uint64_t of_one;
    if (of_one == 0) {
        long second = sysconf(_SC_CLK_TCK);
        of_one = 1000000u / (uint64_t)(second > 0 ? second : 100);
    }
    return ticks * of_one;
}

static char *next_line(char *line) {
    char *end = strchr(line, '\n');
    return end != NULL ? end + 1 : line + strlen(line);
}

static void processors(void) {
    char *text = file_again(&stat_fd, AT_FDCWD, "/proc/stat");
    unsigned count = 0;
    if (text == NULL)
        return;
    char *line = text;
    for (; strncmp(line, "cpu", 3) == 0 && count <= MOST_PROCESSORS; line = next_line(line), count++) {
        uint64_t value;
        char *at = line + strcspn(line, " ");
        out_line("%.*s", (int)(at - line), line);
        for (int field = 0; field < CPU_FIELDS; field++)
            out_number(next_number(&at, &value) ? microseconds(value) : UNKNOWN);
        out_line("\n");
    }
    out_line("kernel");
    out_number(number_of(line, "ctxt"));
    out_number(number_of(line, "processes"));
    out_number(number_of(line, "procs_running"));
    out_number(number_of(line, "procs_blocked"));
    out_line("\n");
}

/* "0.12 0.34 …" as thousandths. */
static bool thousandths(char **at, uint64_t *value) {
    uint64_t whole, part;
    if (!next_number(at, &whole) || **at != '.')
        return false;
    char *begin = ++*at;
    if (!next_number(at, &part))
        return false;
    for (long digits = *at - begin; digits < 3; digits++)
        part *= 10;
    *value = 1000 * whole + part;
    return true;
}

static void load(void) {
    char *at = file_again(&load_fd, AT_FDCWD, "/proc/loadavg");
    struct sysinfo now;
    if (at != NULL) {
        out_line("load");
        for (int i = 0; i < 3; i++) {
            uint64_t value;
            out_number(thousandths(&at, &value) ? value : UNKNOWN);
        }
        out_line("\n");
    } else if (sysinfo(&now) == 0) {
        out_line("load");
        for (int i = 0; i < 3; i++)
            out_number((uint64_t)now.loads[i] * 1000 >> SI_LOAD_SHIFT);
        out_line("\n");
    }
}

/* Where the kernel has no /proc, sysinfo() knows less. */
static void memory(void) {
    static const char *const keys[] = {
        "MemTotal:", "MemFree:", "MemAvailable:", "Buffers:", "Cached:", "SwapTotal:", "SwapFree:"};
    char *text = file_again(&memory_fd, AT_FDCWD, "/proc/meminfo");
    struct sysinfo now;
    if (text == NULL && sysinfo(&now) != 0)
        return;
    out_line("memory");
    if (text != NULL) {
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
            uint64_t kilobytes = number_of(text, keys[i]);
            out_number(kilobytes == UNKNOWN ? UNKNOWN : 1024 * kilobytes);
        }
    } else {
        uint64_t unit = now.mem_unit;
        out_number(now.totalram * unit);
        out_number(now.freeram * unit);
        out_number(UNKNOWN);
        out_number(now.bufferram * unit);
        out_number(UNKNOWN);
        out_number(now.totalswap * unit);
        out_number(now.freeswap * unit);
    }
    out_line("\n");
}

/* A whole disk, and none of its partitions: what those do is the disk's, too. */
static bool is_whole(const char *name) {
    char path[96];
    snprintf(path, sizeof path, "/sys/block/%.63s", name);
    return access(path, F_OK) == 0;
}

/* major minor name, reads merged sectors ms, writes merged sectors ms, in flight, ms busy */
static void disk(char *line) {
    uint64_t values[11], number;
    char name[64], *at = line;
    if (!next_number(&at, &number) || !next_number(&at, &number))
        return;
    at += strspn(at, " ");
    size_t size = strcspn(at, " \n");
    char raw[64];
    snprintf(raw, sizeof raw, "%.*s", (int)(size < 63 ? size : 63), at);
    at += size;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (!next_number(&at, &values[i]))
            return;
    if (values[0] + values[4] == 0 || !is_whole(raw))
        return;
    plain_name(name, sizeof name, raw);
    out_line("disk %s", name);
    out_number(values[0]);
    out_number(SECTOR * values[2]);
    out_number(values[4]);
    out_number(SECTOR * values[6]);
    out_number(1000 * values[9]);
    out_line("\n");
}

static void disks(void) {
    static char lines[16384]; /* a disk's name is looked up while its text is read */
    char *text = file_again(&disks_fd, AT_FDCWD, "/proc/diskstats");
    if (text == NULL)
        return;
    snprintf(lines, sizeof lines, "%s", text);
    unsigned count = 0;
    for (char *line = lines; *line != '\0' && count < MOST_DISKS; line = next_line(line), count++)
        disk(line);
}

/* name: bytes packets errs drop fifo frame compressed multicast, and the same of what was sent. What is a container's
 * end of a pair of interfaces counts as the container's. */
static void network(void) {
    char *line = file_again(&network_fd, AT_FDCWD, "/proc/net/dev");
    unsigned count = 0;
    for (; line != NULL && *line != '\0' && count < MOST_INTERFACES; line = next_line(line)) {
        uint64_t values[10];
        char name[32], raw[32];
        char *begin = line + strspn(line, " "), *at = strchr(begin, ':');
        if (at == NULL || at - begin > 31 || memchr(begin, '\n', (size_t)(at - begin)) != NULL)
            continue;
        snprintf(raw, sizeof raw, "%.*s", (int)(at - begin), begin);
        at++;
        bool whole = strncmp(raw, "veth", 4) != 0;
        for (size_t i = 0; whole && i < sizeof values / sizeof *values; i++)
            whole = next_number(&at, &values[i]);
        if (!whole)
            continue;
        count++;
        plain_name(name, sizeof name, raw);
        out_line("net %s", name);
        out_number(values[0]);
        out_number(values[1]);
        out_number(values[8]);
        out_number(values[9]);
        out_line("\n");
    }
}

void machine_sample(void) {
    processors();
    load();
    memory();
    disks();
    network();
}
