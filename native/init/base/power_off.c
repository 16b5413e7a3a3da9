/* SPDX-License-Identifier: Apache-2.0 */
#include "init/base/power_off.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/reboot.h>
#include <unistd.h>

#include "init/base/incoming.h"
#include "init/base/serial_line.h"

_Noreturn void power_off(void) {
    sync();
    line_drain();
    incoming_wait_for_host();
    /* A reset ends the machine in most monitors; others start it again. */
    const char *how = getenv("VT_END");
    if (how != NULL && strcmp(how, "off") == 0)
        reboot(RB_POWER_OFF);
    reboot(RB_AUTOBOOT);
    line_note("", "reboot: %s", strerror(errno));
    line_flush();
    for (;;)
        pause();
}

_Noreturn void fatal(const char *symbol, const char *format, ...) {
    va_list args;
    va_start(args, format);
    line_fatal(symbol, format, args);
    va_end(args);
    power_off();
}
