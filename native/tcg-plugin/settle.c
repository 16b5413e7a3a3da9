// SPDX-License-Identifier: GPL-2.0-or-later
#include "settle.h"

#include "die.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PAUSE_NS 20000
// A host can be so busy that a thread which could run does not come to it, or its disk so slow. Going on without it
// would let the guest's time run while it waits, and no figure would say so: the run ends instead.
#define PATIENCE_MS 300000
#define LONGEST_MS 1000 // that a pause counts as: who stopped all of QEMU for an hour has not made it wait
// A thread that wakes another sleeps only after the other is awake, but a scan looks at them one after the other. Three
// quiet scans in a row leave no room for a hand-over (worker to main thread) to slip through.
#define QUIET_SCANS 3

// The state letter in /proc/self/task/TID/stat, which follows the name in parentheses; 0 when the thread is gone.
static char state_of(int tasks, const char *tid) {
    char path[288], text[512];
    snprintf(path, sizeof(path), "%s/stat", tid);
    int file = openat(tasks, path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return 0;
    ssize_t size = read(file, text, sizeof(text) - 1);
    close(file);
    if (size <= 0)
        return 0;
    text[size] = '\0';
    char *name_end = strrchr(text, ')');
    return name_end && name_end[1] == ' ' ? name_end[2] : 0;
}

static bool others_sleep(DIR *tasks, long self) {
    struct dirent *entry;
    rewinddir(tasks);
    while ((entry = readdir(tasks))) {
        if (entry->d_name[0] == '.' || atol(entry->d_name) == self)
            continue;
        char state = state_of(dirfd(tasks), entry->d_name);
        if (state && state != 'S')
            return false;
    }
    return true;
}

static long milliseconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

// Returns when every other thread of the process sleeps.
static void settle(void) {
    static DIR *tasks;
    static long self;
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    if (!tasks) {
        tasks = opendir("/proc/self/task");
        self = syscall(SYS_gettid);
        if (!tasks)
            die("open /proc/self/task: %s", strerror(errno));
    }
    long waited = 0, last = milliseconds_now();
    for (int quiet = 0; quiet < QUIET_SCANS;) {
        quiet = others_sleep(tasks, self) ? quiet + 1 : 0;
        if (quiet)
            continue;
        nanosleep(&pause, NULL);
        long now = milliseconds_now();
        waited += now - last < LONGEST_MS ? now - last : LONGEST_MS;
        last = now;
        if (waited > PATIENCE_MS)
            die("QEMU's threads were not done with a device within %d s: the host is too busy", PATIENCE_MS / 1000);
    }
}

// Interrupt controllers, timers: nobody else works for them.
static bool answers_at_once(const struct config *config, uint64_t physical) {
    uint64_t page = physical & ~(uint64_t)0xfff;
    for (unsigned i = 0; i < config->page_count; i++)
        if (config->pages[i] == page)
            return true;
    return false;
}

void settle_after(const struct config *config, const struct qemu_plugin_hwaddr *address) {
    if (!answers_at_once(config, qemu_plugin_hwaddr_phys_addr(address)))
        settle();
}

static void on_store(unsigned vcpu, qemu_plugin_meminfo_t info, uint64_t vaddr, void *userdata) {
    struct qemu_plugin_hwaddr *address = qemu_plugin_get_hwaddr(info, vaddr);
    (void)vcpu;
    if (address && qemu_plugin_hwaddr_is_io(address))
        settle_after(userdata, address);
}

void settle_after_stores(const struct config *config, struct qemu_plugin_insn *insn) {
    qemu_plugin_register_vcpu_mem_cb(insn, on_store, QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_W, (void *)config);
}
