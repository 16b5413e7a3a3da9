/* SPDX-License-Identifier: Apache-2.0 */
#include "attendant/attend.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attendant/programs.h"
#include "attendant/reports.h"
#include "common/wire.h"
#include "init/base/event_loop.h"
#include "init/base/host.h"
#include "init/base/marks.h"
#include "init/base/power_off.h"
#include "init/base/read_file.h"
#include "init/base/serial_line.h"
#include "init/exercise/exercise.h"
#include "init/exercise/sampling.h"
#include "init/settings/settings.h"

#define MOST (4 << 20)

struct settings settings;

static void from_host(void *context, char type, const uint8_t *payload, size_t length) {
    (void)context;
    (void)payload;
    (void)length;
    if (type == WIRE_GO)
        exercise_go();
}

static void reaped(pid_t pid, int status) {
    if (!reports_exit(pid, status) && !sampling_exit(pid))
        exercise_exit(pid, status);
}

void attend_prepare(int port) {
    size_t length;
    settings_default(&settings);
    char *text = read_file("/config", MOST, &length);
    const char *wrong = text == NULL ? strerror(errno) : settings_read(&settings, text, length);
    if (wrong != NULL)
        fatal("", "/config: %s", wrong);
    reports_read();
    programs_hold();
    line_take(port);
    line_key(settings.key);
}

_Noreturn void attend(void) {
    line_text(WIRE_HELLO, "init 1");
    line_mark("init", vt_mark_init());
    loop_start(reaped);
    host_listen(settings.key, from_host);
    exercise_start();
    sampling_start();
    for (;;)
        loop_step(exercise_advance());
}
