/* SPDX-License-Identifier: Apache-2.0 */
#include "init/exercise/sampling.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "arch.h"
#include "common/clock.h"
#include "init/base/event_loop.h"
#include "init/base/marks.h"
#include "init/base/serial_line.h"
#include "init/container/child.h"
#include "init/settings/settings.h"

static struct watch out = {.fd = -1};
static pid_t sampler;

static void pass_on(struct watch *watch, short events) {
    (void)events;
    char part[1900]; /* with its name, one frame */
    ssize_t got = read(watch->fd, part, sizeof part);
    if (got > 0)
        line_file("sample", part, (size_t)got);
    else if (got == 0 || (errno != EAGAIN && errno != EINTR))
        loop_remove(watch);
}

void sampling_start(void) {
    static char every[16];
    int ends[2];
    if (settings.sample_ms == 0)
        return;
    snprintf(every, sizeof every, "%d", settings.sample_ms);
    if (pipe2(ends, O_CLOEXEC) != 0) {
        line_note("", "pipe2(samples): %d", errno);
        return;
    }
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    loop_add(&out, ends[0], POLLIN, pass_on);
    sampler = child_tool((char *[]){"/.vmtailor/builtin", "sample", every, "0", NULL}, ends[1]);
    close(ends[1]);
}

bool sampling_exit(pid_t pid) {
    if (sampler <= 0 || pid != sampler)
        return false;
    sampler = 0;
    line_note("", "the sampler has ended");
    return true;
}

void sampling_step(int number) {
    char name[24];
    if (settings.sample_ms == 0)
        return;
    snprintf(name, sizeof name, "step-%d", number);
    line_mark(name, (struct stamp){.cycles = arch_cycles(), .mono_ns = now_ns(), .real_ns = real_ns()});
}
