/* SPDX-License-Identifier: Apache-2.0 */
/* Who this machine is: its name, and the files that say so. */
#include "init/machine/hostname.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "init/base/serial_line.h"
#include "init/machine/net_words.h"
#include "init/settings/settings.h"

/* The file that a link of the image leads to, emptied, as engines use it; -1 where there is none, or it is no file. */
static int open_behind(const char *path) {
    struct stat found;
    if (lstat(path, &found) != 0 || !S_ISLNK(found.st_mode) || stat(path, &found) != 0 || !S_ISREG(found.st_mode))
        return -1;
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || ftruncate(fd, 0) == 0)
        return fd;
    close(fd);
    return -1;
}

/* A link that leads nowhere gives way to the file. Our own programs, and the kernel's files, cannot be emptied. */
static void write_file(const char *path, const char *text) {
    int fd = open_behind(path);
    if (fd < 0) {
        unlink(path);
        fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
    }
    if (fd < 0) {
        line_note("", "open(%s): %s", path, strerror(errno));
        return;
    }
    size_t length = strlen(text);
    if (write(fd, text, length) != (ssize_t)length)
        line_note("", "write(%s): %s", path, strerror(errno));
    close(fd);
}

/* Where the image says nothing of it, what is mounted can be read where it always could. */
static void link_mounts(void) {
    struct stat found;
    if (stat("/etc/mtab", &found) == 0)
        return;
    unlink("/etc/mtab");
    if (symlink("/proc/mounts", "/etc/mtab") != 0)
        line_note("", "symlink(/etc/mtab): %s", strerror(errno));
}

/* Lines, each ended; NULL where there are none, or no memory. */
static char *lines_of(const struct list *lines, const char *before, const char *behind) {
    size_t length = strlen(before) + strlen(behind) + 1;
    for (size_t i = 0; i < lines->count; i++)
        length += strlen(lines->items[i]) + 1;
    char *text = lines->count > 0 ? malloc(length) : NULL;
    if (text == NULL)
        return NULL;
    char *end = stpcpy(text, before);
    for (size_t i = 0; i < lines->count; i++)
        end = stpcpy(stpcpy(end, lines->items[i]), "\n");
    strcpy(end, behind);
    return text;
}

/* What the run says of names: further hosts stand before our own, as engines have it. */
static void write_names(const struct surroundings *more, const char *address) {
    static const char usual[] = "127.0.0.1\tlocalhost\n::1\tip6-localhost ip6-loopback\n";
    char own[512];
    if (more->domain != NULL && setdomainname(more->domain, strlen(more->domain)) != 0)
        line_note("", "setdomainname(%s): %s", more->domain, strerror(errno));
    if (more->domain != NULL)
        snprintf(own, sizeof own, "%s\t%.64s.%.64s %.64s\n", address, settings.hostname, more->domain,
                 settings.hostname);
    else
        snprintf(own, sizeof own, "%s\t%.64s\n", address, settings.hostname);
    char *hosts = lines_of(&more->hosts, usual, own);
    if (hosts == NULL && more->domain != NULL) {
        struct list none = {.items = (char *[]){own}, .count = 1};
        own[strlen(own) - 1] = '\0';
        hosts = lines_of(&none, usual, "");
    }
    if (hosts != NULL)
        write_file("/etc/hosts", hosts);
    free(hosts);
    char *resolver = lines_of(&more->resolver, "", "");
    if (resolver != NULL)
        write_file("/etc/resolv.conf", resolver);
    free(resolver);
}

void hostname_set(void) {
    char text[512];
    struct net_words net = {0};
    if (settings.net != NULL)
        net_words_read(&net, settings.net);
    const char *address = net.address[0] != '\0' ? net.address : "127.0.1.1";
    if (sethostname(settings.hostname, strlen(settings.hostname)) != 0)
        line_note("", "sethostname(%s): %s", settings.hostname, strerror(errno));
    mkdir("/etc", 0755);
    snprintf(text, sizeof text, "%.64s\n", settings.hostname);
    write_file("/etc/hostname", text);
    /* As where an engine gives no IPv6: resolvers would put ::1 first, and many servers listen on 127.0.0.1 alone. */
    snprintf(text, sizeof text, "127.0.0.1\tlocalhost\n::1\tip6-localhost ip6-loopback\n%s\t%.64s\n", address,
             settings.hostname);
    write_file("/etc/hosts", text);
    if (net.dns[0] != '\0') {
        snprintf(text, sizeof text, "nameserver %s\n", net.dns);
        write_file("/etc/resolv.conf", text);
    }
    if (settings.surroundings != NULL)
        write_names(settings.surroundings, address);
    link_mounts();
}
