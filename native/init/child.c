/* SPDX-License-Identifier: Apache-2.0 */
/* What runs as the container: the entry point, and the commands of the exercise. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "init.h"

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define CANNOT_EXECUTE 126
#define NOT_FOUND 127

/* A tracer carries this message queue limit, which nothing else asks for, so that it outlives those it traces. */
#define TRACER_MARK 0x5654

static struct identity identity;

static void put_default(const char *name, const char *value) {
    char *assignment = malloc(strlen(name) + strlen(value) + 2);
    if (list_get(&told.env, name) != NULL || assignment == NULL)
        return;
    sprintf(assignment, "%s=%s", name, value);
    list_put(&told.env, assignment);
}

static void make_directories(const char *path) {
    char part[4096];
    if (strlen(path) >= sizeof part)
        return;
    strcpy(part, path);
    for (char *slash = strchr(part + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(part, 0755);
        *slash = '/';
    }
    mkdir(part, 0755);
}

static const char *prepare(void) {
    const char *wrong = identity_find(told.user, &identity);
    if (wrong != NULL)
        return wrong;
    put_default("PATH", DEFAULT_PATH);
    put_default("HOSTNAME", told.hostname);
    if (told.terminal)
        put_default("TERM", "xterm");
    put_default("HOME", identity.home);
    return NULL;
}

void child_prepare(void) {
    const char *wrong = prepare();
    if (wrong != NULL)
        fatal("", "user '%s': %s", told.user, wrong);
    for (size_t i = 0; i < told.volumes.count; i++)
        make_directories(told.volumes.items[i]);
}

uid_t child_uid(void) {
    return identity.uid;
}

/* --- in the child --- */

/* Which kernel symbol would have helped: only users and groups can be missing by name. */
static const char *symbol_for(int error, const char *call) {
    return error == ENOSYS && strncmp(call, "set", 3) == 0 ? "MULTIUSER" : "";
}

/* The same for a program that the kernel does not know how to execute, by its first bytes. */
static const char *symbol_of_format(const char *path) {
    unsigned char head[5] = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, head, sizeof head) < 2)
        return "";
    close(fd);
    if (head[0] == '#' && head[1] == '!')
        return "BINFMT_SCRIPT";
    return memcmp(head, "\177ELF\001", 5) == 0 ? "IA32_EMULATION" : "";
}

_Noreturn static void give_up(int status_fd, int exit_code, int error, const char *format, const char *what) {
    struct child_status status = {.what = 'e', .error = error, .exit_code = exit_code};
    const char *symbol = error == ENOEXEC ? symbol_of_format(what) : symbol_for(error, format);
    snprintf(status.symbol, sizeof status.symbol, "%s", symbol);
    snprintf(status.call, sizeof status.call, format, what);
    if (write(status_fd, &status, sizeof status) < 0)
        _exit(CANNOT_EXECUTE);
    _exit(exit_code);
}

static void enter_directory(int status_fd) {
    make_directories(told.cwd);
    if (chdir(told.cwd) != 0)
        give_up(status_fd, CANNOT_EXECUTE, errno, "chdir(%s)", told.cwd);
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
    if (identity.group_count > 0 && setgroups(identity.group_count, identity.groups) != 0 && identity.uid != 0)
        give_up(status_fd, CANNOT_EXECUTE, errno, "setgroups%s", "");
    if (identity.uid == 0 && identity.gid == 0)
        return;
    own_streams();
    if (setgid(identity.gid) != 0)
        give_up(status_fd, CANNOT_EXECUTE, errno, "setgid%s", "");
    if (setuid(identity.uid) != 0)
        give_up(status_fd, CANNOT_EXECUTE, errno, "setuid%s", "");
}

static bool executable(const char *path, int *error) {
    struct stat found;
    if (stat(path, &found) != 0) {
        if (errno != ENOENT && errno != ENOTDIR)
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
    const char *search = list_get(&told.env, "PATH");
    if (strchr(name, '/') != NULL) {
        snprintf(path, 4096, "%s", name);
        if (executable(path, &error))
            return;
        search = NULL;
    }
    while (search != NULL) {
        size_t length = strcspn(search, ":");
        snprintf(path, 4096, "%.*s%s%s", (int)length, search, length > 0 ? "/" : "", name);
        if (executable(path, &error))
            return;
        search = search[length] == ':' ? search + length + 1 : NULL;
    }
    give_up(status_fd, error == ENOENT ? NOT_FOUND : CANNOT_EXECUTE, error, "execve(%s)", name);
}

_Noreturn static void become(struct list *argv, int status_fd, bool mark) {
    char path[4096];
    enter_directory(status_fd);
    if (!capabilities_leave_ours())
        give_up(status_fd, CANNOT_EXECUTE, errno, "capset%s", "");
    become_user(status_fd);
    look_up(argv->items[0], path, status_fd);
    if (mark) {
        struct child_status status = {.what = 'm', .stamp = vt_mark_entry()};
        if (write(status_fd, &status, sizeof status) < 0)
            _exit(CANNOT_EXECUTE);
    }
    execve(path, argv->items, told.env.items);
    /* Found, yet "not found": its interpreter is what is missing. */
    give_up(status_fd, errno == ENOENT ? NOT_FOUND : CANNOT_EXECUTE, errno,
            errno == ENOENT ? "execve(%s, or the interpreter that it names)" : "execve(%s)", path);
}

/* --- traced: through the tracer, then through `init --exec` --- */

/* Leave what the second half must know in an unlinked file; its descriptor, or -1. */
static int leave_records(const struct list *argv) {
    int fd = open("/dev/.vt-exec", O_RDWR | O_CREAT | O_EXCL, 0600);
    FILE *file = fd < 0 ? NULL : fdopen(dup(fd), "w");
    unlink("/dev/.vt-exec");
    if (file == NULL)
        return -1;
    fprintf(file, "vmtailor 1%c", 0);
    for (size_t i = 0; i < argv->count; i++)
        fprintf(file, "arg %s%c", argv->items[i], 0);
    for (size_t i = 0; i < told.env.count; i++)
        fprintf(file, "env %s%c", told.env.items[i], 0);
    fprintf(file, "cwd %s%cuser %s%cprivileged %d%c", told.cwd, 0, told.user, 0, told.privileged, 0);
    return fclose(file) == 0 ? fd : -1;
}

_Noreturn static void become_traced(const struct list *argv, int status_fd, bool mark) {
    char records[16], status[16];
    int fd = leave_records(argv);
    if (fd < 0)
        give_up(status_fd, CANNOT_EXECUTE, errno, "open(%s)", "/dev/.vt-exec");
    snprintf(records, sizeof records, "%d", fd);
    snprintf(status, sizeof status, "%d", status_fd);
    fcntl(status_fd, F_SETFD, 0);
    setrlimit(RLIMIT_MSGQUEUE, &(struct rlimit){TRACER_MARK, TRACER_MARK});

    struct list words = {0};
    char *before[] = {"/.vmtailor/tools/ld.so", "--library-path", "/.vmtailor/tools/lib", "/.vmtailor/tools/strace"};
    char *after[] = {"-o",     mark ? "/dev/.vt-trace-entry" : "/dev/.vt-trace-command",
                     "--",     "/.vmtailor/init",
                     "--exec", records,
                     status,   mark ? "1" : "0"};
    for (size_t i = 0; i < sizeof before / sizeof *before; i++)
        list_add(&words, before[i]);
    bool apart = false;
    for (size_t i = 0; i < told.trace.count; i++) {
        list_add(&words, told.trace.items[i]);
        apart = apart || strncmp(told.trace.items[i], "-D", 2) == 0;
    }
    if (!apart)
        list_add(&words, "-D"); /* the tracer is no parent of the entry point, which stays our child */
    for (size_t i = 0; i < sizeof after / sizeof *after; i++)
        list_add(&words, after[i]);
    execve(words.items[0], words.items, (char *[]){NULL});
    give_up(status_fd, CANNOT_EXECUTE, errno, "execve(%s)", words.items[0]);
}

int child_exec_again(int argc, char **argv) {
    if (argc != 5)
        return 2;
    int records_fd = atoi(argv[2]), status_fd = atoi(argv[3]);
    fcntl(status_fd, F_SETFD, FD_CLOEXEC);
    struct rlimit normal;
    if (prlimit(1, RLIMIT_MSGQUEUE, NULL, &normal) == 0)
        setrlimit(RLIMIT_MSGQUEUE, &normal);
    off_t length = lseek(records_fd, 0, SEEK_END);
    char *text = length > 0 ? malloc((size_t)length) : NULL;
    if (text == NULL || pread(records_fd, text, (size_t)length, 0) != length)
        give_up(status_fd, CANNOT_EXECUTE, errno, "pread(%s)", "/dev/.vt-exec");
    close(records_fd);
    settings_default(&told);
    const char *wrong = settings_read(&told, text, (size_t)length);
    if (wrong == NULL)
        wrong = prepare();
    if (wrong != NULL || told.argv.count == 0)
        give_up(status_fd, CANNOT_EXECUTE, EINVAL, "settings: %s", wrong != NULL ? wrong : "no entry point");
    if (!capabilities_limit_traced())
        give_up(status_fd, CANNOT_EXECUTE, errno, "prctl(%s)", "PR_CAPBSET_DROP");
    become(&told.argv, status_fd, argv[4][0] == '1');
}

bool child_is_tracer(pid_t pid) {
    struct rlimit limit;
    return prlimit(pid, RLIMIT_MSGQUEUE, NULL, &limit) == 0 && limit.rlim_max == TRACER_MARK;
}

/* --- starting --- */

/* The hard limit of open files that engines give; the kernel's own is 4096. */
#define MOST_FILES 524288

static void set_limits(void) {
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_max < MOST_FILES) {
        files.rlim_max = MOST_FILES;
        setrlimit(RLIMIT_NOFILE, &files); /* left as it is where the kernel's limit is lower */
    }
}

static void reset_signals(void) {
    sigset_t none;
    sigemptyset(&none);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGCHLD, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

pid_t child_start(struct list *argv, struct stdio stdio, bool mark, int *status_fd) {
    int status[2];
    if (pipe2(status, O_CLOEXEC) != 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0) {
        reset_signals();
        set_limits();
        setsid();
        if (stdio.terminal)
            ioctl(stdio.in, TIOCSCTTY, 0);
        if (dup2(stdio.in, 0) < 0 || dup2(stdio.out, 1) < 0 || dup2(stdio.err, 2) < 0)
            give_up(status[1], CANNOT_EXECUTE, errno, "dup2%s", "");
        if (told.trace.count > 0)
            become_traced(argv, status[1], mark);
        become(argv, status[1], mark);
    }
    close(status[1]);
    if (pid < 0 || status_fd == NULL)
        close(status[0]);
    else
        *status_fd = status[0];
    return pid;
}

pid_t child_tool(char *const argv[], int out) {
    pid_t pid = fork();
    if (pid == 0) {
        reset_signals();
        dup2(out, 1);
        execve(argv[0], argv, (char *[]){NULL});
        _exit(NOT_FOUND);
    }
    return pid;
}
