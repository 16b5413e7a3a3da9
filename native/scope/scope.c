// SPDX-License-Identifier: Apache-2.0
// Runs a program where nothing that it starts can outlive it, whatever engine it drives: processes, mounts, network
// devices, shared memory and /run of its own, and a cgroup as the root of what it sees. Killing any of us ends all.
//
//   scope FOLDER CGROUP PROGRAM...
//
// FOLDER takes the mount points; CGROUP is the path of a cgroup below every hierarchy's root, which is there already.
// Needs root. The status is the program's; 126 when the scope cannot be made, with the call that failed.
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CGROUPS "/sys/fs/cgroup"
enum { FAILED = 126, LONGEST = 4096 };

static _Noreturn void die(const char *call, const char *what) {
    fprintf(stderr, "scope: %s %s: %s\n", call, what, strerror(errno));
    _exit(FAILED);
}

static void put(const char *path, const char *text) {
    int file = open(path, O_WRONLY | O_CLOEXEC);
    if (file < 0 || write(file, text, strlen(text)) < 0)
        die("write", path);
    close(file);
}

static void attach(const char *source, const char *target, const char *type, unsigned long flags, const char *options) {
    if (mount(source, target, type, flags, options) < 0)
        die("mount", target);
}

// A hierarchy of /proc/self/cgroup: its number, its controllers ("" for version 2), the path in it.
struct hierarchy {
    dev_t device;
    char controllers[512];
    char where[LONGEST];
};

static struct hierarchy hierarchies[24];
static size_t count;

static bool is_known(dev_t device) {
    for (size_t i = 0; i < count; i++)
        if (hierarchies[i].device == device)
            return true;
    return false;
}

// Where the hierarchies are mounted, each once. A cgroup that has no place is none that an engine could use.
static void find_hierarchies(void) {
    static char line[LONGEST];
    FILE *mounts = fopen("/proc/self/mounts", "re");
    if (!mounts)
        die("open", "/proc/self/mounts");
    while (fgets(line, sizeof(line), mounts) && count < sizeof(hierarchies) / sizeof(hierarchies[0])) {
        char where[LONGEST], type[64], options[1024];
        if (sscanf(line, "%*s %4095s %63s %1023s", where, type, options) != 3)
            continue;
        struct stat there;
        if ((strcmp(type, "cgroup") && strcmp(type, "cgroup2")) || stat(where, &there) < 0 || is_known(there.st_dev))
            continue;
        struct hierarchy *one = &hierarchies[count++];
        one->device = there.st_dev;
        snprintf(one->where, sizeof(one->where), "%s", where);
        one->controllers[0] = 0;
        if (!strcmp(type, "cgroup2"))
            continue;
        for (char *word = strtok(options, ","); word; word = strtok(NULL, ","))
            if (strcmp(word, "rw") && strcmp(word, "ro") && strcmp(word, "relatime") && strcmp(word, "nosuid") &&
                strcmp(word, "nodev") && strcmp(word, "noexec") && strcmp(word, "xattr") &&
                strncmp(word, "release_agent", 13)) {
                size_t length = strlen(one->controllers);
                snprintf(one->controllers + length, sizeof(one->controllers) - length, "%s%s", length ? "," : "", word);
            }
    }
    fclose(mounts);
}

static void enter_cgroups(const char *cgroup) {
    static char path[2 * LONGEST];
    for (size_t i = 0; i < count; i++) {
        snprintf(path, sizeof(path), "%s/%s/cgroup.procs", hierarchies[i].where, cgroup);
        put(path, "0");
    }
}

// Version 2 gives no controllers to cgroups below one that has processes. So we, who stay outside and wait, do not stay
// in ours, which is the scope's root: we go to one of our own below it. Returns the way back, for our child.
static int step_aside(const char *cgroup) {
    static char path[2 * LONGEST];
    for (size_t i = 0; i < count; i++) {
        if (hierarchies[i].controllers[0])
            continue;
        snprintf(path, sizeof(path), "%s/%s/cgroup.procs", hierarchies[i].where, cgroup);
        int back = open(path, O_WRONLY | O_CLOEXEC);
        if (back < 0)
            die("open", path);
        snprintf(path, sizeof(path), "%s/%s/outside", hierarchies[i].where, cgroup);
        if (mkdir(path, 0755) < 0 && errno != EEXIST)
            die("mkdir", path);
        snprintf(path, sizeof(path), "%s/%s/outside/cgroup.procs", hierarchies[i].where, cgroup);
        put(path, "0");
        return back;
    }
    return -1;
}

// The same hierarchies again, with our cgroup as their root. Version 2 beside others stays away: engines refuse it.
static void mount_cgroups(void) {
    if (count == 1 && !hierarchies[0].controllers[0]) {
        attach("cgroup2", CGROUPS, "cgroup2", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
        return;
    }
    attach("cgroups", CGROUPS, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=755");
    for (size_t i = 0; i < count; i++) {
        static char target[LONGEST];
        const char *named = hierarchies[i].controllers;
        if (!*named)
            continue;
        snprintf(target, sizeof(target), CGROUPS "/%.511s", strncmp(named, "name=", 5) ? named : named + 5);
        if (mkdir(target, 0755) < 0)
            die("mkdir", target);
        attach("cgroup", target, "cgroup", MS_NOSUID | MS_NODEV | MS_NOEXEC, named);
    }
}

static void own_places(const char *folder) {
    attach(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
    attach("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
    attach("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
    mount_cgroups();
    attach("run", "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755");
    attach("shm", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777");
    if (chdir(folder) < 0)
        die("chdir", folder);
}

static volatile pid_t heir;

static void pass_on(int number) {
    if (heir > 0)
        kill(heir, number);
}

static int status_of(int status) {
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Waits for one child and reaps all others; returns its status.
static int wait_for(pid_t one) {
    for (;;) {
        int status;
        pid_t ended = waitpid(-1, &status, 0);
        if (ended == one)
            return status_of(status);
        if (ended < 0 && errno != EINTR)
            return FAILED;
    }
}

// The first process of the scope: with it, the kernel ends every other.
static _Noreturn void first(char **words, const char *here) {
    own_places(words[1]);
    pid_t program = heir = fork();
    if (program < 0)
        die("fork", words[3]);
    if (program == 0) {
        if (chdir(here) < 0)
            die("chdir", here);
        execvp(words[3], words + 3);
        die("exec", words[3]);
    }
    _exit(wait_for(program));
}

int main(int words_count, char **words) {
    struct sigaction passing = {.sa_handler = pass_on};
    pid_t parent = getppid();
    char here[LONGEST];
    if (words_count < 4) {
        fprintf(stderr, "usage: scope FOLDER CGROUP PROGRAM...\n");
        return FAILED;
    }
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
        die("prctl", "PR_SET_PDEATHSIG");
    if (!getcwd(here, sizeof(here)))
        die("getcwd", "");
    find_hierarchies();
    enter_cgroups(words[2]);
    if (unshare(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWCGROUP) < 0)
        die("unshare", "namespaces");
    sigaction(SIGINT, &passing, NULL);
    sigaction(SIGTERM, &passing, NULL);
    int back = step_aside(words[2]);
    pid_t inner = heir = fork();
    if (inner < 0)
        die("fork", "");
    if (inner == 0) {
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
            die("prctl", "PR_SET_PDEATHSIG");
        if (back >= 0 && write(back, "0", 1) < 0)
            die("enter", words[2]);
        first(words, here);
    }
    return wait_for(inner);
}
