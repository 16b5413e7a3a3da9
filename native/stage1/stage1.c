/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /init of the initial RAM disk that lets a packaged kernel boot as our own would: it loads the modules listed in
 * /modules/list in that order, says where they are, mounts the root disk, makes it the root and executes the real init.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/klog.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "common/wire.h"

#define DISK_MS 10000
#define REPORT (1 << 20)

static const uint8_t open_key[WIRE_KEY]; /* the run's own key is on a disk that we do not read */
static uint8_t sequence;

static void send(char type, const void *payload, size_t length) {
    uint8_t frame[WIRE_HEADER + WIRE_PAYLOAD];
    size_t size =
        wire_encode(frame, open_key, type, sequence++, payload, length < WIRE_PAYLOAD ? length : WIRE_PAYLOAD);
    if (write(1, frame, size) < 0)
        return;
}

static void send_file(const char *name, const char *data, size_t length) {
    while (length > 0) {
        char payload[WIRE_PAYLOAD];
        size_t held = (size_t)snprintf(payload, 64, "%s", name) + 1;
        size_t part = length < sizeof payload - held ? length : sizeof payload - held;
        memcpy(payload + held, data, part);
        send(WIRE_FILE, payload, held + part);
        data += part;
        length -= part;
    }
}

/* What may be missed later, or never: an empty symbol comes first. */
static void note(const char *what, const char *path, int error) {
    char text[512] = "";
    snprintf(text + 1, sizeof text - 1, "%s(%s): %s", what, path, strerror(error));
    send(WIRE_NOTE, text, 1 + strlen(text + 1));
}

_Noreturn static void fatal(const char *format, ...) {
    static char log[65536];
    char text[512] = "";
    va_list args;
    va_start(args, format);
    vsnprintf(text + 1, sizeof text - 1, format, args); /* an empty symbol comes first */
    va_end(args);
    send(WIRE_FATAL, text, 1 + strlen(text + 1));
    int length = klogctl(3, log, sizeof log);
    send_file("kernel-log", log, length > 0 ? (size_t)length : 0);
    tcdrain(1);
    reboot(RB_AUTOBOOT);
    for (;;)
        pause();
}

static void open_port(void) {
    struct termios mode;
    if (tcgetattr(1, &mode) == 0) {
        cfmakeraw(&mode);
        mode.c_cflag |= CLOCAL | CREAD;
        tcsetattr(1, TCSANOW, &mode);
    }
    send(WIRE_HELLO, "stage1 1", 8);
}

static const struct {
    const char *type, *target;
} MOUNTS[] = {{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}};

static void mount_helpers(void) {
    for (size_t i = 0; i < sizeof MOUNTS / sizeof *MOUNTS; i++) {
        mkdir(MOUNTS[i].target, 0755);
        if (mount(MOUNTS[i].type, MOUNTS[i].target, MOUNTS[i].type, 0, NULL) != 0)
            fatal("mount(%s on %s): %s", MOUNTS[i].type, MOUNTS[i].target, strerror(errno));
    }
}

/* A whole pseudo-file; "" when it is not there. */
static size_t read_text(const char *path, char *text, size_t room) {
    size_t held = 0;
    ssize_t got = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && held < room - 1 && (got = read(fd, text + held, room - 1 - held)) > 0)
        held += (size_t)got;
    if (fd >= 0)
        close(fd);
    text[held] = '\0';
    return held;
}

static void load_modules(void) {
    static char list[65536];
    read_text("/modules/list", list, sizeof list);
    char *rest = list;
    for (char *name = strtok_r(rest, "\n", &rest); name != NULL; name = strtok_r(rest, "\n", &rest)) {
        char path[256];
        snprintf(path, sizeof path, "/modules/%s", name);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            fatal("open(%s): %s", path, strerror(errno));
        if (syscall(SYS_finit_module, fd, "", 0) != 0 && errno != EEXIST)
            note("finit_module", path, errno); /* a driver may refuse where its device is not */
        close(fd);
        unlink(path); /* its memory is the guest's */
    }
}

/* "module section address" lines: what a reader of addresses needs, since a module's parts lie apart. */
static void report_sections(const char *modules) {
    static char report[REPORT];
    size_t held = 0;
    for (const char *line = modules; *line != '\0'; line += strcspn(line, "\n") + 1) {
        char folder[128], name[64];
        if (sscanf(line, "%63s", name) != 1)
            break;
        snprintf(folder, sizeof folder, "/sys/module/%s/sections", name);
        DIR *sections = opendir(folder);
        struct dirent *entry;
        while (sections != NULL && (entry = readdir(sections)) != NULL && held < REPORT - 512) {
            char path[512], address[32];
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
            if (entry->d_name[0] == '.' && (entry->d_name[1] == '\0' || entry->d_name[1] == '.'))
                continue;
            read_text(path, address, sizeof address);
            address[strcspn(address, "\n")] = '\0';
            held += (size_t)snprintf(report + held, REPORT - held, "%s %s %s\n", name, entry->d_name, address);
        }
        if (sections != NULL)
            closedir(sections);
        if (line[strcspn(line, "\n")] == '\0')
            break;
    }
    send_file("module-sections", report, held);
}

static void report_modules(void) {
    static char modules[REPORT];
    size_t length = read_text("/proc/modules", modules, sizeof modules);
    send_file("modules", modules, length);
    report_sections(modules);
}

/* From here on the kernel asks init for modules, which notes it. */
static void hear_requests(const char *init) {
    int fd = open("/proc/sys/kernel/modprobe", O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, init, strlen(init)) < 0)
        note("write", "/proc/sys/kernel/modprobe", errno);
    close(fd);
}

/* The value of `key` on the kernel's command line, or `otherwise`. */
static char *word(char *line, const char *key, char *otherwise) {
    size_t length = strlen(key);
    for (char *at = line; *at != '\0'; at += strcspn(at, " \n"), at += strspn(at, " \n"))
        if (strncmp(at, key, length) == 0 && at[length] == '=')
            return strndup(at + length + 1, strcspn(at + length + 1, " \n"));
    return otherwise;
}

static void mount_root(char *line) {
    char *disk = word(line, "root", "/dev/vda");
    char *type = word(line, "rootfstype", "erofs");
    struct stat found;
    for (int waited = 0; stat(disk, &found) != 0; waited++) {
        if (waited == DISK_MS)
            fatal("the root disk %s did not appear within %d ms", disk, DISK_MS);
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    mkdir("/root", 0755);
    if (mount(disk, "/root", type, MS_RDONLY, NULL) != 0)
        fatal("mount(%s as %s): %s", disk, type, strerror(errno));
}

static void switch_root(char *line, char **argv) {
    char *init = word(line, "init", "/.vmtailor/init");
    hear_requests(init);
    for (size_t i = 0; i < sizeof MOUNTS / sizeof *MOUNTS; i++)
        umount2(MOUNTS[i].target, MNT_DETACH);
    unlink("/modules/list");
    unlink("/init");
    if (chdir("/root") != 0 || mount(".", "/", NULL, MS_MOVE, NULL) != 0 || chroot(".") != 0 || chdir("/") != 0)
        fatal("switch to the root disk: %s", strerror(errno));
    tcdrain(1);
    argv[0] = init;
    execv(init, argv);
    fatal("execve(%s): %s", init, strerror(errno));
}

int main(int argc, char **argv) {
    static char line[4096];
    (void)argc;
    open_port();
    mount_helpers();
    read_text("/proc/cmdline", line, sizeof line);
    load_modules();
    report_modules();
    mount_root(line);
    switch_root(line, argv);
}
