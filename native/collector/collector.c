// SPDX-License-Identifier: Apache-2.0
/*
 * Watches the processes of a boot from inside the guest, from the first one on. It stands in for the initial RAM disk's
 * /init (rdinit=), starts a child that samples, and becomes the real /init: the guest's own disk is not touched.
 *
 * The child holds /proc open by a mount that is already detached, so that nothing of it is in anyone's way. It writes
 * to the second serial port, as text, only what has changed since the sample before:
 *
 *     @ UPTIME             a sample begins; UPTIME in 1/100 s
 *     c REST               a line of /proc/stat (cpu …)
 *     d REST               a line of /proc/diskstats
 *     p REST               a line of /proc/PID/stat, up to its 24th field
 *     i PID READ WRITTEN   bytes from and to disks
 *     x PID                it is gone
 *
 * It samples ten times a second; less often, but twice at least, where that would cost more than a twentieth of the
 * processor's time. Kernel threads are looked at in every tenth sample.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "arch.h"

#define PERIOD_NS 100000000L
#define MAX_PERIOD_NS 500000000L
#define SHARE 20 /* the period is at least this many times what a sample costs */
#define KERNEL_THREADS_EVERY 10
#define MAX_TASKS 4096
#define STAT_FIELDS 24
#define PORT "/.vmtailor-port"
#define PROC "/.vmtailor-proc"

struct task {
    int pid;
    int fd;
    bool kernel;
    bool seen;
    uint32_t hash;
};

static struct task tasks[MAX_TASKS];
static unsigned task_count;
static int proc_fd, port_fd;
static char out[65536];
static size_t out_used;

static void flush_out(void) {
    size_t done = 0;
    while (done < out_used) {
        ssize_t n = write(port_fd, out + done, out_used - done);
        if (n < 0 && errno != EINTR)
            _exit(0);
        done += n > 0 ? (size_t)n : 0;
    }
    out_used = 0;
}

static void put_line(char kind, const char *text, size_t size) {
    if (out_used + size + 4 > sizeof(out))
        flush_out();
    if (size + 4 > sizeof(out))
        return;
    out[out_used++] = kind;
    out[out_used++] = ' ';
    memcpy(out + out_used, text, size);
    out_used += size;
    out[out_used++] = '\n';
}

static uint32_t hash_of(const char *text, size_t size) {
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ (unsigned char)text[i]) * 16777619u;
    return hash;
}

static ssize_t read_whole(int fd, char *to, size_t size) {
    size_t used = 0;
    ssize_t n;
    while (used < size - 1 && (n = pread(fd, to + used, size - 1 - used, (off_t)used)) > 0)
        used += (size_t)n;
    to[used] = '\0';
    return (ssize_t)used;
}

// Lines of a file that differ from the sample before. `wanted` chooses by the line's begin.
static void put_changed(int fd, char kind, bool (*wanted)(const char *), uint32_t *hashes, unsigned most) {
    static char text[131072];
    unsigned number = 0;
    if (fd < 0 || read_whole(fd, text, sizeof(text)) <= 0)
        return;
    for (char *line = text, *end; *line && (end = strchr(line, '\n')) && number < most; line = end + 1) {
        *end = '\0';
        if (!wanted(line))
            continue;
        uint32_t hash = hash_of(line, (size_t)(end - line));
        if (hashes[number] != hash)
            put_line(kind, line, (size_t)(end - line));
        hashes[number++] = hash;
    }
}

static bool is_cpu(const char *line) {
    return !strncmp(line, "cpu", 3);
}

static bool is_used_disk(const char *line) {
    unsigned major_number, minor_number;
    char name[64];
    unsigned long long reads;
    return sscanf(line, "%u %u %63s %llu", &major_number, &minor_number, name, &reads) == 4 && reads &&
           strncmp(name, "ram", 3) && strncmp(name, "loop", 4);
}

static struct task *task_of(int pid) {
    static unsigned hint;
    for (unsigned i = 0; i < task_count; i++) {
        unsigned at = (hint + i) % task_count;
        if (tasks[at].pid == pid) {
            hint = at + 1;
            return &tasks[at];
        }
    }
    if (task_count == MAX_TASKS)
        return NULL;
    struct task *task = &tasks[task_count];
    char name[32];
    snprintf(name, sizeof(name), "%d/stat", pid);
    int fd = openat(proc_fd, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    task_count++;
    *task = (struct task){.pid = pid, .fd = fd};
    return task;
}

static void put_io(int pid) {
    char name[32], text[512], line[96];
    snprintf(name, sizeof(name), "%d/io", pid);
    int fd = openat(proc_fd, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t size = read_whole(fd, text, sizeof(text));
    close(fd);
    char *read_at = size > 0 ? strstr(text, "\nread_bytes: ") : NULL;
    char *write_at = size > 0 ? strstr(text, "\nwrite_bytes: ") : NULL;
    if (!read_at || !write_at)
        return;
    unsigned long long got = strtoull(read_at + 13, NULL, 10), put = strtoull(write_at + 14, NULL, 10);
    if (got || put)
        put_line('i', line, (size_t)snprintf(line, sizeof(line), "%d %llu %llu", pid, got, put));
}

static void look_at(struct task *task) {
    char text[1024];
    if (read_whole(task->fd, text, sizeof(text)) <= 0) {
        task->seen = false;
        return;
    }
    char *rest = strrchr(text, ')');
    if (!rest)
        return;
    unsigned fields = 2;
    while (*rest && *rest != '\n' && (*rest != ' ' || fields++ < STAT_FIELDS))
        rest++;
    uint32_t hash = hash_of(text, (size_t)(rest - text));
    if (hash == task->hash)
        return;
    if (!task->hash) {
        char *parent = strrchr(text, ')');
        task->kernel = task->pid == 2 || (parent && !strncmp(parent + 3, " 2 ", 3));
    }
    task->hash = hash;
    put_line('p', text, (size_t)(rest - text));
    if (!task->kernel)
        put_io(task->pid);
}

static void forget_the_gone(void) {
    char line[16];
    for (unsigned i = 0; i < task_count;) {
        if (tasks[i].seen) {
            i++;
            continue;
        }
        put_line('x', line, (size_t)snprintf(line, sizeof(line), "%d", tasks[i].pid));
        close(tasks[i].fd);
        tasks[i] = tasks[--task_count];
    }
}

static void sample(unsigned number, DIR *proc, int stat_fd, int disks_fd) {
    static uint32_t cpu_hashes[512], disk_hashes[512];
    struct timespec now;
    char line[32];
    clock_gettime(CLOCK_BOOTTIME, &now);
    put_line('@', line, (size_t)snprintf(line, sizeof(line), "%lld", now.tv_sec * 100LL + now.tv_nsec / 10000000));
    put_changed(stat_fd, 'c', is_cpu, cpu_hashes, 512);
    put_changed(disks_fd, 'd', is_used_disk, disk_hashes, 512);
    for (unsigned i = 0; i < task_count; i++)
        tasks[i].seen = false;
    rewinddir(proc);
    for (struct dirent *entry; (entry = readdir(proc));) {
        struct task *task = isdigit((unsigned char)entry->d_name[0]) ? task_of(atoi(entry->d_name)) : NULL;
        if (!task)
            continue;
        task->seen = true;
        if (!task->kernel || number % KERNEL_THREADS_EVERY == 0)
            look_at(task);
    }
    forget_the_gone();
    flush_out();
}

static int64_t nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static int watch(void) {
    struct termios raw;
    DIR *proc = fdopendir(dup(proc_fd));
    int stat_fd = openat(proc_fd, "stat", O_RDONLY | O_CLOEXEC);
    int disks_fd = openat(proc_fd, "diskstats", O_RDONLY | O_CLOEXEC);
    if (!proc || tcgetattr(port_fd, &raw))
        return 0;
    cfmakeraw(&raw);
    cfsetspeed(&raw, B115200);
    tcsetattr(port_fd, TCSANOW, &raw);
    for (unsigned number = 0;; number++) {
        int64_t began = nanoseconds(), cost;
        sample(number, proc, stat_fd, disks_fd);
        cost = nanoseconds() - began;
        int64_t period = cost * SHARE > PERIOD_NS ? cost * SHARE : PERIOD_NS;
        int64_t left = (period < MAX_PERIOD_NS ? period : MAX_PERIOD_NS) - cost;
        left = left > 0 ? left : PERIOD_NS;
        struct timespec wait = {left / 1000000000, left % 1000000000};
        nanosleep(&wait, NULL);
    }
}

// /proc by a descriptor alone: mounted, opened, and taken away again.
static int open_proc(void) {
    if (mkdir(PROC, 0700) && errno != EEXIST)
        return -1;
    if (mount("proc", PROC, "proc", 0, NULL))
        return -1;
    int fd = open(PROC, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    umount2(PROC, MNT_DETACH);
    rmdir(PROC);
    return fd;
}

static int open_port(void) {
    unlink(PORT);
    if (mknod(PORT, S_IFCHR | 0600, ARCH_SECOND_PORT))
        return -1;
    int fd = open(PORT, O_WRONLY | O_NOCTTY | O_CLOEXEC);
    unlink(PORT);
    return fd;
}

int main(int argc, char **argv) {
    (void)argc;
    proc_fd = open_proc();
    port_fd = open_port();
    // systemd leaves a process alone, when it changes over to the real root, whose name begins with '@'.
    if (proc_fd >= 0 && port_fd >= 0 && !fork()) {
        setsid();
        for (int fd = 0; fd < 3; fd++)
            close(fd);
        memset(argv[0], 0, strlen(argv[0]));
        argv[0][0] = '@';
        return watch();
    }
    argv[0] = "/init";
    execv("/init", argv);
    perror("vmtailor collector: /init");
    return 127;
}
