/* SPDX-License-Identifier: Apache-2.0 */
/* The end: what the entry point left running, what is left to say, power-off. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/reboot.h>
#include <unistd.h>

#include "init.h"

#define LAST_PID 32768
#define TRACER_MS 60000
#define KILLED_MS 5000

static void signal_all(int number) {
    if (told.trace.count == 0) {
        kill(-1, number);
        return;
    }
    for (pid_t pid = 2; pid <= LAST_PID; pid++)
        if (!child_is_tracer(pid))
            kill(pid, number);
}

static bool only_tracers(void) {
    if (told.trace.count == 0)
        return false;
    for (pid_t pid = 2; pid <= LAST_PID; pid++)
        if (getsid(pid) > 0 && !child_is_tracer(pid))
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
        wait_for_all(told.grace_ms);
    }
    if (loop_has_children()) {
        signal_all(SIGKILL);
        wait_for_all(told.trace.count > 0 ? TRACER_MS : KILLED_MS);
    }
    if (loop_has_children() && told.trace.count > 0) {
        port_note("", "the tracer did not end; the trace may lack its last lines");
        kill(-1, SIGKILL);
        wait_for_all(KILLED_MS);
    }
    uint64_t deadline = now_ns() + (uint64_t)KILLED_MS * 1000000u;
    while (entry_streams_open() && now_ns() < deadline)
        loop_step(deadline);
}

_Noreturn void power_off(void) {
    sync();
    port_drain();
    reboot(RB_AUTOBOOT);
    port_note("", "reboot: %s", strerror(errno));
    for (;;)
        pause();
}
