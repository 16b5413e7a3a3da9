/* SPDX-License-Identifier: Apache-2.0 */
/* Who this machine is: its name, and the files that say so. */
#include "init/machine/hostname.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "init/base/serial_line.h"
#include "init/settings/settings.h"

static void write_file(const char *path, const char *text) {
    unlink(path); /* a link in the image must not lead us elsewhere */
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0) {
        line_note("", "open(%s): %s", path, strerror(errno));
        return;
    }
    size_t length = strlen(text);
    if (write(fd, text, length) != (ssize_t)length)
        line_note("", "write(%s): %s", path, strerror(errno));
    close(fd);
}

/* Does this address have the form "10.0.2.15/24,10.0.2.2,10.0.2.3"? Its parts, or empty strings. */
static void split_net(const char *net, char address[16], char dns[16]) {
    address[0] = dns[0] = '\0';
    if (net == NULL || sscanf(net, "%15[0-9.]/%*d,%*[0-9.],%15[0-9.]", address, dns) < 1)
        address[0] = '\0';
}

void hostname_set(void) {
    char address[16], dns[16], text[512];
    split_net(settings.net, address, dns);
    if (sethostname(settings.hostname, strlen(settings.hostname)) != 0)
        line_note("", "sethostname(%s): %s", settings.hostname, strerror(errno));
    mkdir("/etc", 0755);
    snprintf(text, sizeof text, "%.64s\n", settings.hostname);
    write_file("/etc/hostname", text);
    snprintf(text, sizeof text, "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n%s\t%.64s\n",
             address[0] != '\0' ? address : "127.0.1.1", settings.hostname);
    write_file("/etc/hosts", text);
    if (dns[0] != '\0') {
        snprintf(text, sizeof text, "nameserver %s\n", dns);
        write_file("/etc/resolv.conf", text);
    }
}
