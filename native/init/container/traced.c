/* SPDX-License-Identifier: Apache-2.0 */
#include "init/container/traced.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "init/container/program.h"
#include "init/machine/capabilities.h"
#include "init/settings/settings.h"

/* A tracer carries this message queue limit, which nothing else asks for, so that it outlives those it traces. */
#define TRACER_MARK 0x5654
#define STRACE "/.vmtailor/tools/strace"
#define NUMBER_MS 10000

/* Where a tmpfs cannot have a file without a name, it has one for a moment. */
static int unnamed_file(void) {
    int fd = open("/dev", O_TMPFILE | O_EXCL | O_RDWR, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR))
        return fd;
    fd = open("/dev/.vt-exec", O_RDWR | O_CREAT | O_EXCL, 0600);
    unlink("/dev/.vt-exec");
    return fd;
}

/* Leave what the second half must know where no process of the container can open it: else its root could have a
 * command start with more rights. A descriptor, or -1. */
static int leave_records(const struct list *argv) {
    int fd = unnamed_file();
    FILE *file = fd < 0 ? NULL : fdopen(dup(fd), "w");
    if (file == NULL)
        return -1;
    fprintf(file, "vmtailor 1%c", 0);
    for (size_t i = 0; i < argv->count; i++)
        fprintf(file, "arg %s%c", argv->items[i], 0);
    for (size_t i = 0; i < settings.env.count; i++)
        fprintf(file, "env %s%c", settings.env.items[i], 0);
    fprintf(file, "cwd %s%cuser %s%cprivileged %d%c", settings.cwd, 0, settings.user, 0, settings.privileged, 0);
    const struct surroundings *more = settings.surroundings;
    if (more != NULL && more->rights != NULL)
        fprintf(file, "+rights %s%c", more->rights, 0);
    if (more != NULL && more->no_new_privileges)
        fprintf(file, "+no-new-privileges 1%c", 0);
    for (size_t i = 0; more != NULL && i < more->groups.count; i++)
        fprintf(file, "+group %s%c", more->groups.items[i], 0);
    return fclose(file) == 0 ? fd : -1;
}

bool traced_prepare(struct handover *handover) {
    if (pipe2(handover->number, O_CLOEXEC) != 0)
        return false;
    if (pipe2(handover->attached, O_CLOEXEC) == 0)
        return true;
    close(handover->number[0]);
    close(handover->number[1]);
    return false;
}

/* Tell init our number, and wait until the tracer has us. */
static bool hand_over(const struct handover *handover) {
    pid_t number = getpid(); /* in the namespace, which is the tracer's, too */
    char byte;
    ssize_t got;
    close(handover->number[0]);
    close(handover->attached[1]);
    if (write(handover->number[1], &number, sizeof number) != (ssize_t)sizeof number)
        return false;
    close(handover->number[1]);
    do
        got = read(handover->attached[0], &byte, 1);
    while (got < 0 && errno == EINTR);
    return got == 1; /* at its end there is none who would say it */
}

_Noreturn void traced_become(const struct list *argv, int status_fd, bool mark, const struct handover *handover) {
    char records[16], status[16];
    int fd = leave_records(argv);
    if (fd < 0)
        program_give_up(status_fd, CANNOT_EXECUTE, errno, "open(%s)", "a file in /dev");
    snprintf(records, sizeof records, "%d", fd);
    snprintf(status, sizeof status, "%d", status_fd);
    fcntl(status_fd, F_SETFD, 0);
    if (!hand_over(handover))
        program_give_up(status_fd, CANNOT_EXECUTE, ESRCH, "execve(%s)", STRACE);
    char *words[] = {"/.vmtailor/init", "--exec", records, status, mark ? "1" : "0", NULL};
    execve(words[0], words, (char *[]){NULL});
    program_give_up(status_fd, CANNOT_EXECUTE, errno, "execve(%s)", words[0]);
}

pid_t traced_number(const struct handover *handover) {
    pid_t number;
    struct pollfd look = {.fd = handover->number[0], .events = POLLIN};
    /* Another of the container may have stopped it. */
    if (poll(&look, 1, NUMBER_MS) <= 0 || read(look.fd, &number, sizeof number) != (ssize_t)sizeof number)
        return -1;
    return number;
}

_Noreturn void traced_attach(pid_t number, bool mark, int attached) {
    char traced[16], fd[16];
    int nothing = open("/dev/null", O_RDWR);
    struct list words = {0};
    char *before[] = {"/.vmtailor/tools/ld.so", "--library-path", "/.vmtailor/tools/lib", STRACE};
    /* No signal of the container's ends or stops it (-I4). It attaches before it starts what says so. */
    char *after[] = {"-I4",
                     "-o",
                     mark ? "/dev/.vt-trace-entry" : "/dev/.vt-trace-command",
                     "-p",
                     traced,
                     "--",
                     "/.vmtailor/init",
                     "--attached",
                     fd};
    snprintf(traced, sizeof traced, "%d", (int)number);
    snprintf(fd, sizeof fd, "%d", attached);
    fcntl(attached, F_SETFD, 0);
    setrlimit(RLIMIT_MSGQUEUE, &(struct rlimit){TRACER_MARK, TRACER_MARK});
    if (nothing < 0)
        _exit(NOT_FOUND); /* its words would go to the serial line, between our frames */
    for (int stream = 0; stream <= 2; stream++)
        dup2(nothing, stream);
    for (size_t i = 0; i < sizeof before / sizeof *before; i++)
        list_add(&words, before[i]);
    /* Inits of versions before were told by -D to make the tracer a grandchild. */
    for (size_t i = 0; i < settings.trace.count; i++)
        if (strncmp(settings.trace.items[i], "-D", 2) != 0)
            list_add(&words, settings.trace.items[i]);
    for (size_t i = 0; i < sizeof after / sizeof *after; i++)
        list_add(&words, after[i]);
    /* Without a time zone, strace looks for a file that names one twice for each call. */
    execve(words.items[0], words.items, (char *[]){"TZ=UTC0", NULL});
    _exit(NOT_FOUND);
}

int traced_say_attached(const char *fd) {
    return write(atoi(fd), "", 1) == 1 ? 0 : 1;
}

int traced_second_half(int argc, char **argv) {
    if (argc != 5)
        return 2;
    int records_fd = atoi(argv[2]), status_fd = atoi(argv[3]);
    fcntl(status_fd, F_SETFD, FD_CLOEXEC);
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0) /* nobody does; refused to those who are traced already */
        program_give_up(status_fd, CANNOT_EXECUTE, ESRCH, "ptrace(%s)", "PTRACE_SEIZE");
    off_t length = lseek(records_fd, 0, SEEK_END);
    char *text = length > 0 ? malloc((size_t)length) : NULL;
    if (text == NULL || pread(records_fd, text, (size_t)length, 0) != length)
        program_give_up(status_fd, CANNOT_EXECUTE, errno, "pread(%s)", "its records");
    close(records_fd);
    settings_default(&settings);
    const char *wrong = settings_read(&settings, text, (size_t)length);
    if (wrong == NULL)
        wrong = program_prepare();
    if (wrong != NULL || settings.argv.count == 0)
        program_give_up(status_fd, CANNOT_EXECUTE, EINVAL, "settings: %s", wrong != NULL ? wrong : "no entry point");
    if (!capabilities_limit_traced())
        program_give_up(status_fd, CANNOT_EXECUTE, errno, "prctl(%s)", "PR_CAPBSET_DROP");
    program_become(&settings.argv, status_fd, argv[4][0] == '1');
}

/* Of a tracer's own time, where the kernel keeps no clock of it: three eighths of what has passed. */
static uint64_t usually_ns(void) {
    return now_ns() / 8 * 3;
}

uint64_t tracers_ns(void) {
    uint64_t sum = 0;
    for (pid_t pid = 2; settings.trace.count > 0 && pid <= LAST_PID; pid++) {
        clockid_t clock;
        struct timespec used;
        if (!traced_is_tracer(pid))
            continue;
        if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &used) != 0)
            return usually_ns();
        sum += (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
    }
    return sum;
}

bool traced_is_tracer(pid_t pid) {
    struct rlimit limit;
    return prlimit(pid, RLIMIT_MSGQUEUE, NULL, &limit) == 0 && limit.rlim_max == TRACER_MARK;
}
