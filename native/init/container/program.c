/* SPDX-License-Identifier: Apache-2.0 */
/* In a child: from a copy of init to the container's program. */
#include "init/container/program.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arch.h"
#include "init/container/user.h"
#include "init/machine/capabilities.h"
#include "init/settings/settings.h"

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

static struct identity identity;
static size_t given;       /* variables that were told, before those that are put beside them */
static bool home_is_empty; /* it was told so */
static bool further;

static void put(const char *name, const char *value) {
    char *assignment = malloc(strlen(name) + strlen(value) + 2);
    if (assignment == NULL)
        return;
    sprintf(assignment, "%s=%s", name, value);
    list_put(&settings.env, assignment);
}

static void put_default(const char *name, const char *value) {
    if (list_get(&settings.env, name) == NULL)
        put(name, value);
}

#define MOST_LINKS 8 /* that lead to one another, and then nowhere */

static void make_all(const char *path, int links);

/* A directory, or what is missing where a link leads that has its name. */
static void make_one(const char *path, int links) {
    struct stat found;
    char target[4096], whole[8192];
    if (mkdir(path, 0755) == 0 || errno != EEXIST || stat(path, &found) == 0 || links == 0)
        return;
    ssize_t length = readlink(path, target, sizeof target - 1);
    if (length <= 0)
        return;
    target[length] = '\0';
    int folder = target[0] == '/' ? 0 : (int)(strrchr(path, '/') - path) + 1;
    snprintf(whole, sizeof whole, "%.*s%s", folder, path, target);
    make_all(whole, links - 1);
}

static void make_all(const char *path, int links) {
    char part[4096];
    if (*path == '\0' || strlen(path) >= sizeof part)
        return;
    strcpy(part, path);
    for (char *slash = strchr(part + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        make_one(part, links);
        *slash = '/';
    }
    make_one(part, links);
}

void make_directories(const char *path) {
    make_all(path, MOST_LINKS);
}

static const struct list *groups_asked(void) {
    return settings.surroundings != NULL ? &settings.surroundings->groups : NULL;
}

const char *program_prepare(void) {
    const char *wrong = identity_find(settings.user, groups_asked(), &identity);
    if (wrong != NULL)
        return wrong;
    given = settings.env.count;
    put_default("PATH", DEFAULT_PATH);
    put_default("HOSTNAME", settings.hostname);
    if (settings.terminal)
        put_default("TERM", "xterm");
    const char *home = list_get(&settings.env, "HOME");
    home_is_empty = home != NULL && *home == '\0';
    if (home == NULL || home_is_empty) /* engines fill an empty one, too */
        put("HOME", identity.home);
    return NULL;
}

const char *program_prepare_further(const struct order *order) {
    settings.env.count = given;
    if (home_is_empty)
        put("HOME", "");
    for (size_t i = 0; i < order->env.count; i++)
        if (!list_put(&settings.env, order->env.items[i]))
            return "no memory";
    if (order->user != NULL)
        settings.user = order->user;
    if (order->cwd != NULL)
        settings.cwd = order->cwd;
    settings.terminal = order->terminal;
    further = true;
    return program_prepare();
}

/* Which kernel symbol would have helped: only users and groups can be missing by name. */
static const char *symbol_for(int error, const char *call) {
    return error == ENOSYS && strncmp(call, "set", 3) == 0 ? "MULTIUSER" : "";
}

/* The same for a program that the kernel does not know how to execute, by its first bytes. */
static const char *symbol_of_format(const char *path) {
    unsigned char head[40] = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, head, sizeof head) < 2)
        return "";
    close(fd);
    if (head[0] == '#' && head[1] == '!')
        return "BINFMT_SCRIPT";
    return memcmp(head, "\177ELF\001", 5) == 0 ? ARCH_PROGRAMS_OF_32_BITS(head) : "";
}

_Noreturn void program_give_up(int status_fd, int exit_code, int error, const char *format, const char *what) {
    struct child_status status = {.what = 'e', .error = error, .exit_code = exit_code};
    const char *symbol = error == ENOEXEC ? symbol_of_format(what) : symbol_for(error, format);
    snprintf(status.symbol, sizeof status.symbol, "%s", symbol);
    snprintf(status.call, sizeof status.call, format, what);
    signal(SIGPIPE, SIG_IGN); /* nobody reads it of a step's command: the status alone tells then */
    (void)!write(status_fd, &status, sizeof status);
    _exit(exit_code);
}

static void enter_directory(int status_fd) {
    if (!further) /* as engines do it */
        make_directories(settings.cwd);
    if (chdir(settings.cwd) != 0)
        program_give_up(status_fd, CANNOT_EXECUTE, errno, "chdir(%s)", settings.cwd);
}

/* /dev/stdout and its kin are opened anew by name: the pipe or terminal behind them must be the user's. */
static void own_streams(void) {
    struct stat stream;
    for (int fd = 0; fd <= 2; fd++)
        if (fstat(fd, &stream) == 0 && (S_ISFIFO(stream.st_mode) || isatty(fd)))
            (void)!fchown(fd, identity.uid, (gid_t)-1); /* those already open are not hurt when it cannot be */
}

static void become_user(int status_fd) {
    /* Root without further groups is what we are: no call, and so none that a kernel without users lacks. */
    bool must = identity.uid != 0 || (groups_asked() != NULL && groups_asked()->count > 0);
    if (identity.group_count > 0 && setgroups(identity.group_count, identity.groups) != 0 && must)
        program_give_up(status_fd, CANNOT_EXECUTE, errno, "setgroups%s", "");
    if (identity.uid == 0 && identity.gid == 0)
        return;
    own_streams();
    if (setgid(identity.gid) != 0)
        program_give_up(status_fd, CANNOT_EXECUTE, errno, "setgid%s", "");
    if (setuid(identity.uid) != 0)
        program_give_up(status_fd, CANNOT_EXECUTE, errno, "setuid%s", "");
}

/* `named`: as it was given, not one of the places where it may be. */
static bool executable(const char *path, bool named, int *error) {
    struct stat found;
    if (stat(path, &found) != 0) {
        if (errno != ENOENT && (errno != ENOTDIR || named))
            *error = errno;
        return false;
    }
    if (S_ISREG(found.st_mode) && access(path, X_OK) == 0)
        return true;
    *error = EACCES;
    return false;
}

/* Where `name` is, searched as the container's user: in `path` (4096 bytes), or give up. */
static void look_up(const char *name, char *path, int status_fd) {
    int error = ENOENT;
    const char *search = list_get(&settings.env, "PATH");
    if (strchr(name, '/') != NULL) {
        snprintf(path, 4096, "%s", name);
        if (executable(path, true, &error))
            return;
        search = NULL;
    }
    while (search != NULL) {
        size_t length = strcspn(search, ":");
        snprintf(path, 4096, "%.*s%s%s", (int)length, search, length > 0 ? "/" : "", name);
        if (executable(path, false, &error))
            return;
        search = search[length] == ':' ? search + length + 1 : NULL;
    }
    program_give_up(status_fd, error == ENOENT ? NOT_FOUND : CANNOT_EXECUTE, error, "execve(%s)", name);
}

_Noreturn void program_become(struct list *argv, int status_fd, bool mark) {
    char path[4096];
    enter_directory(status_fd);
    if (!capabilities_leave_ours())
        program_give_up(status_fd, CANNOT_EXECUTE, errno, "capset%s", "");
    become_user(status_fd);
    look_up(argv->items[0], path, status_fd);
    if (settings.surroundings != NULL && settings.surroundings->no_new_privileges &&
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        program_give_up(status_fd, CANNOT_EXECUTE, errno, "prctl(%s)", "PR_SET_NO_NEW_PRIVS");
    if (mark) {
        struct child_status status = {.what = 'm', .stamp = vt_mark_entry()};
        if (write(status_fd, &status, sizeof status) < 0)
            _exit(CANNOT_EXECUTE);
    }
    execve(path, argv->items, settings.env.items);
    /* Found, yet "not found": its interpreter is what is missing. */
    program_give_up(status_fd, errno == ENOENT ? NOT_FOUND : CANNOT_EXECUTE, errno,
                    errno == ENOENT ? "execve(%s, or the interpreter that it names)" : "execve(%s)", path);
}
