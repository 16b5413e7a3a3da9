/* SPDX-License-Identifier: Apache-2.0 */
#include "init/container/end_processes.h"

#include <signal.h>
#include <unistd.h>

#include "common/clock.h"
#include "init/base/event_loop.h"
#include "init/base/serial_line.h"
#include "init/container/entry_point.h"
#include "init/container/session.h"
#include "init/container/traced.h"
#include "init/settings/settings.h"

#define TRACER_MS 60000
#define KILLED_MS 5000

static void signal_all(int number) {
    if (settings.trace.count == 0) {
        kill(-1, number);
        return;
    }
    for (pid_t pid = 2; pid <= LAST_PID; pid++)
        if (!traced_is_tracer(pid))
            kill(pid, number);
}

static bool only_tracers(void) {
    if (settings.trace.count == 0)
        return false;
    for (pid_t pid = 2; pid <= LAST_PID; pid++)
        if (getsid(pid) > 0 && !traced_is_tracer(pid))
            return false;
    return true;
}

/* Wait until no process is left, or time is up. */
static void wait_for_all(int milliseconds) {
    uint64_t deadline = now_ns() + (uint64_t)milliseconds * 1000000u;
    while (loop_has_children() && now_ns() < deadline)
        loop_step(deadline);
}

void end_all_processes(void) {
    loop_step(0);
    if (loop_has_children() && !only_tracers()) {
        signal_all(SIGTERM);
        wait_for_all(settings.grace_ms);
    }
    if (loop_has_children()) {
        signal_all(SIGKILL);
        wait_for_all(settings.trace.count > 0 ? TRACER_MS : KILLED_MS);
    }
    if (loop_has_children() && settings.trace.count > 0) {
        line_note("", "the tracer did not end; the trace may lack its last lines");
        kill(-1, SIGKILL);
        wait_for_all(KILLED_MS);
    }
    uint64_t deadline = now_ns() + (uint64_t)KILLED_MS * 1000000u;
    while ((entry_streams_open() || sessions_open()) && now_ns() < deadline) {
        if (entry_streams_wait()) /* a reader may take its time, as on a serial line */
            deadline = now_ns() + (uint64_t)KILLED_MS * 1000000u;
        loop_step(deadline);
    }
}
