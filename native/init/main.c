/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PID 1 of the machines that vmtailor makes. It does what a container engine does around a container, asks as little of
 * the kernel as it can (no /proc, no epoll, no eventfd, no netlink), and tells the host on the serial line how it went.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/wire.h"
#include "init/base/event_loop.h"
#include "init/base/host.h"
#include "init/base/marks.h"
#include "init/base/port.h"
#include "init/base/power_off.h"
#include "init/base/serial_line.h"
#include "init/container/end_processes.h"
#include "init/container/entry_point.h"
#include "init/container/mounts.h"
#include "init/container/session.h"
#include "init/container/surroundings.h"
#include "init/container/trace_log.h"
#include "init/container/traced.h"
#include "init/exercise/exercise.h"
#include "init/exercise/sampling.h"
#include "init/machine/capabilities.h"
#include "init/machine/devices.h"
#include "init/machine/hostname.h"
#include "init/machine/lease.h"
#include "init/machine/module_request.h"
#include "init/machine/network.h"
#include "init/machine/root.h"
#include "init/settings/settings.h"

/* The kernel gives us descriptors 0 to 2, unless the root has no /dev/console: then something must hold their place. */
static void hold_low_descriptors(void) {
    int ends[2];
    while (fcntl(2, F_GETFD) < 0)
        if (pipe(ends) != 0)
            return;
}

static void from_host(void *context, char type, const uint8_t *payload, size_t length) {
    (void)context;
    char text[32] = "";
    memcpy(text, payload, length < sizeof text - 1 ? length : sizeof text - 1);
    switch (type) {
    case WIRE_STDIN:
        entry_stdin(payload, length);
        break;
    case WIRE_STDIN_END:
        entry_stdin_end();
        break;
    case WIRE_SIGNAL:
        entry_signal(atoi(text));
        break;
    case WIRE_WINDOW:
        entry_window(text);
        break;
    case WIRE_GO:
        exercise_go();
        break;
    case WIRE_TAKEN:
        line_taken((size_t)atol(text));
        entry_output_go();
        break;
    default:
        session_frame(type, payload, length);
    }
}

static void reaped(pid_t pid, int status) {
    if (!entry_exit(pid, status) && !exercise_exit(pid, status) && !sampling_exit(pid))
        session_exit(pid, status); /* false: an orphan of the container's */
}

static uint64_t earlier(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "--exec") == 0)
        return traced_second_half(argc, argv);
    if (argc == 3 && strcmp(argv[1], "--attached") == 0)
        return traced_say_attached(argv[2]);
    if (argc == 4 && strcmp(argv[1], "-q") == 0)
        return note_module_request(argv[3]);
    struct stamp started = vt_mark_init();
    if (getpid() != 1) {
        fprintf(stderr, "init: runs as PID 1 of a machine that vmtailor made, nowhere else\n");
        return 2;
    }
    hold_low_descriptors();
    root_from_file();
    line_open();
    root_scratch();
    settings_load();
    if (settings.virtio_line)
        port_open(settings.key);
    line_text(WIRE_HELLO, "init 1"); /* at once: from here on the host believes nobody who lacks the key */
    if (!settings.stdin_relay && !settings.terminal)
        line_hold();
    line_mark("init", started);
    root_writable();
    root_mounts();
    devices_make();
    surroundings_tmpfs();
    if (lease_asked())
        settings.net = lease_wait();
    hostname_set();
    network_up();
    tools_mount();
    mounts_make();
    loop_start(reaped);
    trace_log_open();
    host_listen(settings.key, from_host);
    capabilities_limit();
    entry_start();
    exercise_start();
    sampling_start();

    int exit_code, by_signal;
    const char *why;
    while (!entry_ended(&exit_code, &by_signal, &why))
        loop_step(earlier(earlier(exercise_advance(), line_advance()), sessions_advance()));
    exercise_entry_ended(exit_code);
    sessions_close();
    end_all_processes();
    sessions_end();
    line_text(WIRE_EXIT, "%d %d %s", exit_code, by_signal, why);
    line_mark("end", vt_mark_end());
    trace_log_close();
    mounts_end();
    power_off();
}
