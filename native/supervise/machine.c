// SPDX-License-Identifier: Apache-2.0
#include "supervise/machine.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "supervise/terminal.h"

#define PIPE_BYTES (1 << 20) // what the guest may be ahead of us: the most that a user without privileges gets
#define MOST_SAID 8000
#define TERM_MS 3000 // between SIGTERM and SIGKILL
#define SECTOR 512
#define FIRST_ANEW 512

int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void close_once(int *fd) {
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static _Noreturn void fail(const char *what, const char *which) {
    fprintf(stderr, "supervise: %s%s%s: %s\n", what, *which ? " " : "", which, strerror(errno));
    exit(71);
}

static uint64_t nanoseconds(struct timespec time) {
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static bool is_known(int fd, const struct known *known) {
    struct stat now;
    if (!known->device)
        return true;
    return fstat(fd, &now) == 0 && now.st_dev == known->device && now.st_ino == known->inode &&
           (uint64_t)now.st_size == known->size && nanoseconds(now.st_mtim) == known->modified_ns &&
           nanoseconds(now.st_ctim) == known->changed_ns;
}

// A copy in memory, which whoever inherits it may open again.
static int copied(int source) {
    off_t from = 0;
    ssize_t sent;
    int made = memfd_create("vmtailor", MFD_CLOEXEC);
    if (made < 0)
        fail("make a file in memory", "");
    while ((sent = sendfile(made, source, &from, 1 << 30)) > 0)
        ;
    if (sent < 0 || fchmod(made, 0555))
        fail("copy into memory", "");
    close(source);
    return made;
}

static bool open_file(struct file *file) {
    int flags = O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (file->use == USE_WRITE ? O_RDWR : O_RDONLY);
    if (file->use == USE_INHERIT)
        return fcntl(file->opened, F_SETFD, FD_CLOEXEC) == 0;
    file->opened = open(file->path, flags);
    if (file->opened < 0 && !file->known.device)
        fail("open", file->path);
    if (file->opened < 0 || !is_known(file->opened, &file->known))
        return false;
    fcntl(file->opened, F_SETFL, 0);
    if (file->use == USE_COPY)
        file->opened = copied(file->opened);
    if (file->number < 0)
        close_once(&file->opened);
    return true;
}

bool machine_open(struct orders *orders) {
    for (size_t i = 0; i < orders->count; i++)
        for (size_t j = 0; j < orders->programs[i].count; j++)
            if (!open_file(&orders->programs[i].files[j]))
                return false;
    return true;
}

static void add_record(struct bytes *bytes, const char *text) {
    if (!bytes_add(bytes, text, strlen(text) + 1))
        fail("make the run volume", "");
}

// The run volume, on no disk: the container's environment is in it. The key lies in the first sector, which init
// overwrites.
static int make_volume(const struct orders *orders, uint8_t key[WIRE_KEY]) {
    struct bytes text = {0}, all = {0};
    char line[80];
    size_t at = (size_t)snprintf(line, sizeof(line), "key ");
    if (getrandom(key, WIRE_KEY, 0) != WIRE_KEY)
        fail("make a key", "");
    for (size_t i = 0; i < WIRE_KEY; i++)
        at += (size_t)snprintf(line + at, sizeof(line) - at, "%02x", key[i]);
    add_record(&text, "vmtailor 1");
    add_record(&text, line);
    for (size_t i = 0; i < orders->volume.count; i++)
        add_record(&text, orders->volume.items[i]);
    if (orders->terminal) {
        int rows, columns;
        terminal_size(&rows, &columns);
        snprintf(line, sizeof(line), "rows %d", rows);
        add_record(&text, line);
        snprintf(line, sizeof(line), "cols %d", columns);
        add_record(&text, line);
    }
    static const uint8_t zeros[SECTOR];
    size_t head = (size_t)snprintf(line, sizeof(line), "vtrun %zu\n", bytes_left(&text));
    bytes_add(&all, line, head);
    bytes_add(&all, bytes_first(&text), bytes_left(&text));
    bytes_add(&all, zeros, (SECTOR - bytes_left(&all) % SECTOR) % SECTOR);
    int made = memfd_create("vmtailor", MFD_CLOEXEC);
    if (made < 0 || write(made, bytes_first(&all), bytes_left(&all)) != (ssize_t)bytes_left(&all))
        fail("make the run volume", "");
    bytes_free(&text);
    bytes_free(&all);
    return made;
}

static void make_pipe(int ends[2]) {
    if (pipe2(ends, O_CLOEXEC))
        fail("make a pipe", "");
}

static void make_pair(int ends[2]) {
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
        fail("make a pair of sockets", "");
}

static void set_nonblocking(int fd) {
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

// What a program is given: descriptors of ours, and the numbers that they have there.
struct gift {
    int from, to;
};

// Where our caller had much open, ours may lie at the numbers of others there.
static void move_away(struct gift *gifts, size_t count, const char *program) {
    int behind = 0;
    for (size_t i = 0; i < count; i++)
        behind = gifts[i].to >= behind ? gifts[i].to + 1 : behind;
    for (size_t i = 0; i < count; i++)
        if (gifts[i].from != gifts[i].to && gifts[i].from < behind && gifts[i].from > 2) {
            gifts[i].from = fcntl(gifts[i].from, F_DUPFD_CLOEXEC, behind);
            if (gifts[i].from < 0)
                fail("give a descriptor to", program);
        }
}

static _Noreturn void become(const struct program *program, struct gift *gifts, size_t count, pid_t parent) {
    char number[16];
    struct list argv = {0}, env = program->env;
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (int i = 1; i < NSIG; i++)
        if (i != SIGHUP)
            signal(i, SIG_DFL);
    setsid();
    move_away(gifts, count, program->argv.items[0]);
    for (size_t i = 0; i < count; i++)
        if (gifts[i].from == gifts[i].to ? fcntl(gifts[i].to, F_SETFD, 0) : dup2(gifts[i].from, gifts[i].to) < 0)
            fail("give a descriptor to", program->argv.items[0]);
    // The launcher sees to it that the program ends with us.
    snprintf(number, sizeof(number), "%d", parent);
    bool made = list_add(&argv, program->argv.items[0]) && list_add(&argv, "parent") && list_add(&argv, number);
    for (size_t i = 1; i < program->argv.count; i++)
        made = made && list_add(&argv, program->argv.items[i]);
    char *nothing[] = {NULL};
    if (made)
        execve(argv.items[0], argv.items, env.items ? env.items : nothing);
    fail("execute", program->argv.items[0]);
}

// Where the kernel weighs sessions (autogroup, sched(7)), one of its own yields to others only if it is told so.
static void yield_as_we_do(pid_t pid) {
    char path[64], text[16];
    int nice = getpriority(PRIO_PROCESS, 0);
    if (nice <= 0)
        return;
    snprintf(path, sizeof(path), "/proc/%d/autogroup", pid);
    int file = open(path, O_WRONLY | O_CLOEXEC);
    if (file < 0)
        return;
    int length = snprintf(text, sizeof(text), "%d", nice);
    if (write(file, text, (size_t)length) < 0)
        errno = 0; // there is none
    close(file);
}

// The same file, opened anew: a monitor locks its disks, and that lock would outlive it in a descriptor that we hold.
// It lies above all numbers that programs are given. Ours where there is no /proc, or no number left.
static int opened_anew(const struct file *file) {
    char path[32];
    if (file->use == USE_INHERIT || file->use == USE_COPY)
        return file->opened;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", file->opened);
    int made = open(path, O_CLOEXEC | O_NOCTTY | (file->use == USE_WRITE ? O_RDWR : O_RDONLY));
    int high = made < 0 ? -1 : fcntl(made, F_DUPFD_CLOEXEC, FIRST_ANEW);
    close_once(&made);
    return high < 0 ? file->opened : high;
}

static pid_t start(const struct program *program, struct gift *gifts, size_t count) {
    pid_t self = getpid();
    size_t before = count;
    for (size_t i = 0; i < program->count; i++)
        if (program->files[i].number >= 0)
            gifts[count++] = (struct gift){opened_anew(&program->files[i]), program->files[i].number};
    pid_t pid = fork();
    if (pid < 0)
        fail("start", program->argv.items[0]);
    if (pid == 0)
        become(program, gifts, count, self);
    for (size_t i = 0; i < program->count; i++)
        if (program->files[i].number >= 0 && gifts[before++].from != program->files[i].opened)
            close(gifts[before - 1].from);
    yield_as_we_do(pid);
    return pid;
}

static void start_beside(struct machine *machine, const struct orders *orders, int null, int errors) {
    for (size_t i = 1; i < orders->count; i++) {
        struct gift gifts[MOST_FILES + 3] = {{null, 0}, {null, 1}, {errors, 2}};
        machine->beside[i] = start(&orders->programs[i], gifts, 3);
    }
}

void machine_start(struct machine *machine, const struct orders *orders) {
    int from_guest[2], to_guest[2], errors[2], control[2] = {-1, -1}, line[2] = {-1, -1}, null, volume = -1;
    struct gift gifts[MOST_FILES + 16];
    size_t count = 0;
    *machine = (struct machine){.pid = -1, .control = -1, .line = -1};
    make_pipe(from_guest);
    make_pipe(to_guest);
    make_pipe(errors);
    fcntl(from_guest[0], F_SETPIPE_SZ, PIPE_BYTES);
    null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0)
        fail("open", "/dev/null");
    gifts[count++] = (struct gift){to_guest[0], 0};
    gifts[count++] = (struct gift){from_guest[1], 1};
    gifts[count++] = (struct gift){errors[1], 2};
    if (orders->control) {
        make_pair(control);
        gifts[count++] = (struct gift){control[1], orders->control};
    }
    if (orders->line) {
        make_pipe(line);
        gifts[count++] = (struct gift){line[1], orders->line};
    }
    int again = -1;
    if (orders->memory) {
        // A monitor opens a disk that it writes for reading, first: it has the volume twice.
        char path[32];
        volume = make_volume(orders, machine->key);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", volume);
        again = open(path, O_RDONLY | O_CLOEXEC);
        if (again < 0)
            fail("open the run volume", "");
        gifts[count++] = (struct gift){volume, orders->memory};
        gifts[count++] = (struct gift){again, orders->memory + 1};
    }
    machine->started_ms = now_ms();
    start_beside(machine, orders, null, errors[1]);
    machine->pid = start(&orders->programs[0], gifts, count);
    int theirs[] = {to_guest[0], from_guest[1], errors[1], control[1], line[1], null, volume, again};
    for (size_t i = 0; i < sizeof(theirs) / sizeof(*theirs); i++)
        close_once(&theirs[i]);
    machine->serial_in = from_guest[0];
    machine->serial_out = to_guest[1];
    machine->errors = errors[0];
    machine->control = control[0];
    machine->line = line[0];
    int ours[] = {machine->serial_in, machine->serial_out, machine->errors, machine->control, machine->line};
    for (size_t i = 0; i < sizeof(ours) / sizeof(*ours); i++)
        if (ours[i] >= 0)
            set_nonblocking(ours[i]);
}

void machine_listen(struct machine *machine) {
    char data[4096];
    ssize_t length;
    while (machine->errors >= 0 && (length = read(machine->errors, data, sizeof(data))) != 0) {
        if (length < 0 && errno == EINTR)
            continue;
        if (length < 0)
            return;
        bytes_add_tail(&machine->said, data, (size_t)length, MOST_SAID);
    }
    close_once(&machine->errors);
}

bool machine_wait(struct machine *machine, int64_t wait_ms) {
    int status;
    int64_t end = now_ms() + wait_ms;
    while (!machine->ended) {
        machine_listen(machine);
        pid_t found = waitpid(machine->pid, &status, WNOHANG);
        if (found == machine->pid) {
            machine->ended = true;
            machine->status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
        } else if (now_ms() >= end) {
            return false;
        } else {
            poll(NULL, 0, 5);
        }
    }
    machine_listen(machine);
    return true;
}

static size_t read_proc(pid_t pid, const char *thread, const char *name, char *text, size_t size) {
    char path[96];
    snprintf(path, sizeof(path), "/proc/%d/task/%.20s/%s", pid, thread, name);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? 0 : read(file, text, size - 1);
    text[length > 0 ? length : 0] = '\0';
    close_once(&file);
    return strlen(text);
}

int64_t machine_used_ms(const struct machine *machine) {
    clockid_t clock;
    struct timespec used;
    if (clock_getcpuclockid(machine->pid, &clock) != 0 || clock_gettime(clock, &used) != 0)
        return 0;
    return (int64_t)used.tv_sec * 1000 + used.tv_nsec / 1000000;
}

int64_t machine_asleep(const struct machine *machine, struct bytes *places) {
    char path[32], stat[512], place[64];
    struct dirent *entry;
    int64_t used = 0;
    snprintf(path, sizeof(path), "/proc/%d/task", machine->pid);
    DIR *folder = opendir(path);
    while (folder && used >= 0 && (entry = readdir(folder))) {
        unsigned long long user = 0, system = 0;
        char state = 0;
        if (entry->d_name[0] == '.')
            continue;
        read_proc(machine->pid, entry->d_name, "stat", stat, sizeof(stat));
        char *name = strchr(stat, '('), *end = strrchr(stat, ')');
        int got =
            end ? sscanf(end + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &state, &user, &system) : 0;
        used = got == 3 && state == 'S' ? used + (int64_t)(user + system) : -1;
        if (used < 0 || !name)
            break;
        read_proc(machine->pid, entry->d_name, "wchan", place, sizeof(place));
        bytes_add(places, name, (size_t)(end + 1 - name));
        bytes_add(places, " ", 1);
        bytes_add(places, place, strlen(place));
        bytes_add(places, " ", 1);
    }
    if (folder)
        closedir(folder);
    return folder ? used : -1;
}

static void stop_beside(pid_t pid) {
    if (pid <= 0)
        return;
    kill(-pid, SIGKILL);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

void machine_stop(struct machine *machine) {
    if (!machine->ended) {
        kill(-machine->pid, SIGTERM);
        machine_wait(machine, TERM_MS);
    }
    kill(-machine->pid, SIGKILL);
    if (!machine->ended) {
        kill(machine->pid, SIGKILL);
        machine_wait(machine, INT32_MAX);
    }
    for (size_t i = 1; i < MOST_PROGRAMS; i++)
        stop_beside(machine->beside[i]);
    int *ours[] = {&machine->serial_in, &machine->serial_out, &machine->errors, &machine->control, &machine->line};
    for (size_t i = 0; i < sizeof(ours) / sizeof(*ours); i++)
        close_once(ours[i]);
}
