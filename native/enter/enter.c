// SPDX-License-Identifier: Apache-2.0
// Starts a program in cgroups, a network namespace and a root directory: what a native run has of a container's, and
// how runtimes are begun that set no limits themselves.
//
//   enter [-s] [-u] [-c CGROUP.PROCS]... [-n NETWORK] [-r ROOT] PROGRAM...
//
// -s: in a session of its own, so that what it leaves running is not taken for a part of ours; its status is passed on.
// -u: as nobody, with no way back: for programs of an image that the harness itself needs.
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NOBODY = 65534 };

static int fail(const char *call, const char *what) {
    fprintf(stderr, "enter: %s %s: %s\n", call, what, strerror(errno));
    return 126;
}

int main(int count, char **words) {
    const char *root = NULL;
    bool apart = false, nobody = false;
    pid_t child;
    int option, file;
    while ((option = getopt(count, words, "+suc:n:r:")) != -1) {
        switch (option) {
        case 'c':
            file = open(optarg, O_WRONLY | O_CLOEXEC);
            if (file < 0 || write(file, "0", 1) < 0)
                return fail("write", optarg);
            close(file);
            break;
        case 'n':
            file = open(optarg, O_RDONLY | O_CLOEXEC);
            if (file < 0 || setns(file, CLONE_NEWNET) < 0)
                return fail("setns", optarg);
            close(file);
            break;
        case 's':
            apart = true;
            break;
        case 'u':
            nobody = true;
            break;
        case 'r':
            root = optarg;
            break;
        default:
            return 126;
        }
    }
    if (optind >= count) {
        fprintf(stderr, "usage: enter [-s] [-u] [-c CGROUP.PROCS]... [-n NETWORK] [-r ROOT] PROGRAM...\n");
        return 126;
    }
    if (root && (chroot(root) < 0 || chdir("/") < 0))
        return fail("chroot", root);
    if (nobody && (setgroups(0, NULL) < 0 || setresgid(NOBODY, NOBODY, NOBODY) < 0 ||
                   setresuid(NOBODY, NOBODY, NOBODY) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0))
        return fail("become", "nobody");
    if (apart && (child = fork()) != 0) {
        int status;
        if (child < 0 || waitpid(child, &status, 0) < 0)
            return fail("fork", words[optind]);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    if (apart)
        setsid();
    execvp(words[optind], words + optind);
    return fail("exec", words[optind]);
}
