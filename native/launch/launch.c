// SPDX-License-Identifier: Apache-2.0
// Starts a program with less than its starter has: it dies with the starter, has a user of its own, no privileges, and
// a root directory with nothing in it but what is named here. Becomes the program, so that the starter's child is the
// program itself.
//
//   launch WORD [VALUE...]... -- PROGRAM [ARGUMENT...]
//
//   parent PID            end at once when this process, our parent, ends
//   stranger              a user and a group that nobody else has (asks for CAP_SETUID and CAP_SETGID)
//   group GID             a further group of the stranger's
//   low-ports             keep the right to bind ports below 1024
//   root mount|user       an empty root directory in a mount namespace of its own, or in one of a new user namespace
//   show PATH             the same file or folder in the new root, read-only
//   device PATH           the same device in the new root
//   place FOLDER PATH     a folder of the old root, for writing, at PATH in the new one
//   files                 keep the rights over files of any owner; in a user namespace its root is who starts it
//   uids, gids FIRST COUNT   with these, its further users from 1 on are these numbers of the host
//   mappers UIDS GIDS     the programs newuidmap and newgidmap, for these
//   folder|folder-ro FOLDER PATH   a folder that is shared, at PATH in the new root, without devices and setuid
//   file|file-ro FILE PATH         the same of a file alone
//   copy DESCRIPTOR PATH  what can be read from a descriptor, as a file of the new root; the descriptor is closed
//   work FOLDER           (without a new root) the folder to start in, for writing
//
// Without a program it only says what came of it. Every failure is said on standard error, and the status is 71.
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch/fail.h"
#include "launch/root.h"
#include "launch/users.h"

#define CAP_CHOWN 0
#define CAP_DAC_OVERRIDE 1
#define CAP_FOWNER 3
#define CAP_FSETID 4
#define CAP_NET_BIND_SERVICE 10
#define OVER_FILES (1u << CAP_CHOWN | 1u << CAP_DAC_OVERRIDE | 1u << CAP_FOWNER | 1u << CAP_FSETID)
#define LAST_CAP 63
#define CAP_VERSION_3 0x20080522
#define MAX_GROUPS 8

// A user is made of the process id, of which there are never two. The first range is one that no distribution gives
// away; the second is for user namespaces that know only the usual 65536, where it is that of passing services.
static const struct range { unsigned base, count; } ranges[] = {{0x76740000u, 1u << 22}, {61184u, 4336u}, {65534u, 1u}};

static struct {
    pid_t parent;
    bool stranger, files;
    uint32_t kept; // capabilities
    struct users users;
    gid_t groups[MAX_GROUPS];
    size_t group_count;
    const char *work;
    struct root root;
    char **program;
} want;

static _Noreturn void usage(const char *word) {
    fprintf(stderr, "launch: '%s' is not understood\n", word);
    exit(64);
}

static unsigned number(const char *word) {
    char *end;
    errno = 0;
    unsigned long value = strtoul(word, &end, 10);
    if (errno || end == word || *end || value > INT32_MAX)
        usage(word);
    return (unsigned)value;
}

static void add(enum kind kind, const char *source, const char *path, bool read_only) {
    if (want.root.count == MAX_ITEMS || path[0] != '/')
        usage(path);
    want.root.items[want.root.count++] = (struct item){kind, source, path, -1, read_only};
}

// Words for something at a place of the new root.
static bool add_word(const char *name, const char *source, const char *path) {
    static const struct {
        const char *name;
        enum kind kind;
        bool read_only;
    } words[] = {
        {"place", PLACE, false},     {"copy", COPY, false},       {"folder", FOLDER, false},
        {"folder-ro", FOLDER, true}, {"file", FILE_ALONE, false}, {"file-ro", FILE_ALONE, true},
    };
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (!strcmp(name, words[i].name)) {
            add(words[i].kind, source, path, words[i].read_only);
            return true;
        }
    return false;
}

static void parse(char **word) {
    for (; *word && strcmp(*word, "--"); word++) {
        const char *name = *word;
        if (!strcmp(name, "stranger")) {
            want.stranger = true;
            continue;
        }
        if (!strcmp(name, "low-ports")) {
            want.kept |= 1u << CAP_NET_BIND_SERVICE;
            continue;
        }
        if (!strcmp(name, "files")) {
            want.kept |= OVER_FILES;
            want.files = true;
            continue;
        }
        const char *value = *++word;
        if (!value)
            usage(name);
        if (!strcmp(name, "parent"))
            want.parent = (pid_t)number(value);
        else if (!strcmp(name, "group") && want.group_count < MAX_GROUPS)
            want.groups[want.group_count++] = number(value);
        else if (!strcmp(name, "root") && (!strcmp(value, "mount") || !strcmp(value, "user")))
            want.root.wanted = true, want.root.user = value[0] == 'u';
        else if (!strcmp(name, "show"))
            add(SHOW, value, value, true);
        else if (!strcmp(name, "device"))
            add(DEVICE, value, value, false);
        else if (!strcmp(name, "work"))
            want.work = value;
        else if (word[1] && (users_word(&want.users, name, value, word[1]) || add_word(name, value, word[1])))
            word++;
        else
            usage(name);
    }
    want.program = *word && word[1] ? word + 1 : NULL;
}

// The signal is bound to the thread that started us, which waits for the program as long as it runs. A change of
// user takes it away, so it is asked for again afterwards; a parent that ended before has left us to another.
static void die_with_parent(void) {
    if (!want.parent)
        return;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL))
        fail("die with the starter", "");
    if (getppid() != want.parent)
        raise(SIGKILL);
}

// Which user and group to become: the first range of which the user namespace knows our number.
static uid_t choose(const char *map, unsigned at) {
    unsigned inside, outside, count;
    FILE *file = fopen(map, "re");
    if (!file)
        return ranges[0].base + at % ranges[0].count;
    uid_t chosen = (uid_t)-1;
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]) && chosen == (uid_t)-1; i++) {
        unsigned candidate = ranges[i].base + at % ranges[i].count;
        rewind(file);
        while (fscanf(file, "%u %u %u", &inside, &outside, &count) == 3)
            if (candidate >= inside && candidate - inside < count)
                chosen = candidate;
    }
    fclose(file);
    errno = EINVAL;
    if (chosen == (uid_t)-1)
        fail("find a user of its own in", map);
    return chosen;
}

static void drop_capabilities(void) {
    struct {
        uint32_t version;
        int pid;
    } head = {CAP_VERSION_3, 0};
    struct {
        uint32_t effective, permitted, inheritable;
    } sets[2] = {{want.kept, want.kept, want.kept}, {0, 0, 0}};
    if (syscall(SYS_capset, &head, sets))
        fail("drop capabilities", "");
    for (unsigned cap = 0; cap < 32; cap++)
        if (want.kept >> cap & 1 && prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0))
            fail(cap == CAP_NET_BIND_SERVICE ? "keep the right to bind low ports" : "keep rights over files", "");
}

static void become(uid_t user, gid_t group) {
    for (unsigned cap = 0; cap <= LAST_CAP; cap++) // refused where there is nothing to be dropped from
        if (cap >= 32 || !(want.kept >> cap & 1))
            prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    if (want.stranger) {
        if (want.kept && prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0))
            fail("keep capabilities", "");
        if (setgroups(want.group_count, want.groups))
            fail("leave groups", "");
        if (setresgid(group, group, group) || setresuid(user, user, user))
            fail("become another user", "");
    }
    drop_capabilities();
}

static void report(void) {
    printf("user %u group %u root %s\n", getuid(), getgid(),
           !want.root.wanted ? "-"
           : want.root.user  ? "user"
                             : "mount");
}

static void map_users(void) {
    users_map(&want.users, "the program");
}

// Others can give a namespace its users only from outside: a child does, and has ended before the program starts.
static pid_t giver(void) {
    pid_t us = getpid(), child;
    if (!want.files || !want.root.user)
        return 0;
    want.root.map = map_users;
    users_prepare(&want.users, "the program");
    if (!want.users.mappers[0])
        return 0;
    child = fork();
    if (child < 0)
        fail("start", want.users.mappers[0]);
    if (child == 0) {
        close(want.users.asked[1]);
        users_give(&want.users, us, "the program");
        _exit(0);
    }
    close(want.users.given[1]); // so that a child that fails is noticed
    return child;
}

// Reached just before the program is executed, for whoever counts a start.
static __attribute__((noinline)) void vt_mark_program(void) {
    __asm__ volatile("/* mark program */" ::: "memory");
}

int main(int count, char **words) {
    parse(words + (count > 0));
    die_with_parent();
    pid_t child = giver(); // before: the programs that give users gain the rights to
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        fail("give up new privileges", "");
    uid_t user = getuid();
    gid_t group = getgid();
    if (want.stranger) {
        user = choose("/proc/self/uid_map", (unsigned)getpid());
        group = choose("/proc/self/gid_map", (unsigned)getpid());
    }
    // Without a root or a user of its own it has what its starter has, who has said so.
    bool confined = want.stranger || want.root.wanted;
    if (want.root.wanted)
        root_make(&want.root, user, group);
    else if (want.work && (chdir(want.work) || (want.stranger && chown(".", user, group))))
        fail("work in", want.work);
    if (child)
        waitpid(child, NULL, 0);
    if (confined)
        become(user, group);
    die_with_parent();
    if (!want.program) {
        report();
        return 0;
    }
    vt_mark_program();
    execv(want.program[0], want.program);
    fail("execute", want.program[0]);
}
