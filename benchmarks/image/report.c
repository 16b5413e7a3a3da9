// SPDX-License-Identifier: Apache-2.0
// What is seen from inside an instance: its kernel, namespaces, cgroup and limits, and which program this is.
#define _GNU_SOURCE
#include "report.h"

#include "common.h"
#include "common/sha256.h"

#include <sys/utsname.h>

enum { LONGEST_TEXT = 16384 };

// A JSON string. What files hold is bytes: those outside ASCII are shown by number.
static void put_string(const char *text) {
    putchar('"');
    for (const unsigned char *at = (const unsigned char *)text; *at; at++) {
        if (*at == '"' || *at == '\\')
            printf("\\%c", *at);
        else if (*at < 32 || *at > 126)
            printf("\\u%04x", *at);
        else
            putchar(*at);
    }
    putchar('"');
}

static void put_member(const char *name, const char *text) {
    printf(",\n \"%s\": ", name);
    put_string(text);
}

// A small file as a string; empty where it cannot be read.
static void put_file(const char *name, const char *path) {
    static char text[LONGEST_TEXT];
    size_t length = 0;
    FILE *file = fopen(path, "r");
    if (file) {
        length = fread(text, 1, sizeof(text) - 1, file);
        fclose(file);
    }
    text[length] = 0;
    put_member(name, text);
}

static void put_link(const char *name, const char *path) {
    char text[256];
    ssize_t length = readlink(path, text, sizeof(text) - 1);
    text[length < 0 ? 0 : length] = 0;
    put_member(name, text);
}

static void put_own_digest(void) {
    struct sha256 hash;
    uint8_t digest[32];
    char hex[65] = "";
    static char block[65536];
    size_t length;
    FILE *file = fopen("/proc/self/exe", "r");
    if (file) {
        sha256_start(&hash);
        while ((length = fread(block, 1, sizeof(block), file)) > 0)
            sha256_add(&hash, block, length);
        sha256_end(&hash, digest);
        sha256_hex(digest, hex);
        fclose(file);
    }
    put_member("program_sha256", hex);
}

// Name in our report, and the files that have it: cgroup v2, then v1.
static const char *const LIMITS[][3] = {
    {"memory_limit", "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"},
    {"cpu_quota", "/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us"},
    {"cpu_period", "", "/sys/fs/cgroup/cpu/cpu.cfs_period_us"},
    {"pids_limit", "/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids/pids.max"},
};

int report(const char *call_back) {
    static const char *const NAMESPACES[] = {"cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"};
    struct utsname kernel;
    double at = now_s();
    if (call_back && !create(call_back))
        return fail(call_back);
    uname(&kernel);
    printf("{\"schema\": \"vmtailor/bench-report/1\",\n \"monotonic_s\": %.9f,\n \"pid\": %d", at, (int)getpid());
    put_member("kernel", kernel.release);
    put_member("version", kernel.version);
    put_member("machine", kernel.machine);
    put_member("hostname", kernel.nodename);
    for (size_t i = 0; i < sizeof(NAMESPACES) / sizeof(NAMESPACES[0]); i++) {
        char path[64], name[32];
        snprintf(path, sizeof(path), "/proc/self/ns/%s", NAMESPACES[i]);
        snprintf(name, sizeof(name), "ns_%s", NAMESPACES[i]);
        put_link(name, path);
    }
    for (size_t i = 0; i < sizeof(LIMITS) / sizeof(LIMITS[0]); i++)
        put_file(LIMITS[i][0], access(LIMITS[i][1], R_OK) == 0 ? LIMITS[i][1] : LIMITS[i][2]);
    put_file("cgroup", "/proc/self/cgroup");
    put_file("status", "/proc/self/status");
    put_file("lsm", "/proc/self/attr/current");
    put_file("mounts", "/proc/self/mounts");
    put_file("interfaces", "/proc/self/net/dev");
    put_file("command_line", "/proc/cmdline");
    put_file("processors", "/sys/devices/system/cpu/online");
    printf(",\n \"processors_allowed\": %ld", sysconf(_SC_NPROCESSORS_ONLN));
    put_own_digest();
    puts("\n}");
    return 0;
}

int witness(char **program) {
    report(NULL);
    fflush(stdout);
    execvp(program[0], program);
    return fail(program[0]);
}
