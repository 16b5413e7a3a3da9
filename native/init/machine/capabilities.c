/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the container's root may do: the capabilities that container engines leave it, and no more.
 *
 * Only the bounding set is lowered: it is what a root program gets when it is executed, and another user than root gets
 * none of it. Nothing here fails for want of a kernel symbol: a kernel without MULTIUSER has no capabilities, and root
 * may do everything.
 */
#include "init/machine/capabilities.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "init/base/power_off.h"
#include "init/settings/settings.h"

/* CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID SETPCAP NET_BIND_SERVICE NET_RAW SYS_CHROOT MKNOD AUDIT_WRITE
 * SETFCAP */
#define KEPT 0xa80425fbull
#define SYS_PTRACE 19
#define LEAST 31 /* every kernel has at least these */
#define MOST 64

#define VERSION_3 0x20080522u
struct part {
    uint32_t effective, permitted, inheritable;
};

static struct part own[2];
static bool kept_own;

static long call(long number, struct part parts[2]) {
    struct {
        uint32_t version;
        int pid;
    } head = {VERSION_3, 0};
    return syscall(number, &head, parts);
}

bool capabilities_limited(void) {
    static int known; /* 1: yes, -1: no */
    if (known == 0)
        known = settings.privileged || call(SYS_capget, own) != 0 ? -1 : 1;
    return known > 0;
}

static bool lower_bounds(void) {
    const struct surroundings *more = settings.surroundings;
    uint64_t kept = more != NULL && more->rights != NULL ? strtoull(more->rights, NULL, 16) : KEPT;
    for (unsigned long number = 0; number < MOST; number++)
        if ((kept >> number & 1) == 0 && prctl(PR_CAPBSET_DROP, number, 0, 0, 0) != 0)
            return errno == EINVAL && number > LEAST; /* the kernel has no more of them */
    return true;
}

/* Whoever traces a process, or reads its memory, must hold all that it holds. So the programs of ours that are started
 * later (the client) are given one capability that the container's have not: it cannot make them lie. */
static bool pass_one_on(void) {
    struct part parts[2] = {own[0], own[1]};
    parts[0].inheritable |= 1u << SYS_PTRACE;
    kept_own = call(SYS_capset, parts) == 0;
    return kept_own;
}

void capabilities_limit(void) {
    if (settings.trace.count > 0 || !capabilities_limited())
        return; /* a tracer needs its own: what it traces is limited in its second half */
    if (!pass_one_on() || !lower_bounds())
        fatal("", "the container's capabilities: %s", strerror(errno));
}

bool capabilities_limit_traced(void) {
    return !capabilities_limited() || lower_bounds();
}

bool capabilities_leave_ours(void) {
    own[0].inheritable = own[1].inheritable = 0;
    return !kept_own || call(SYS_capset, own) == 0;
}
