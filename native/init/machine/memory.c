/* SPDX-License-Identifier: Apache-2.0 */
/* Where the machine's memory is: /proc/meminfo, and where there is none, what sysinfo() tells of it, in the same form.
 */
#include "init/machine/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/sysinfo.h>

#include "init/base/read_file.h"
#include "init/base/serial_line.h"

#define MOST 8192

void memory_account(void) {
    size_t length;
    char *known = read_file("/proc/meminfo", MOST, &length);
    if (known != NULL && length > 0) {
        line_file("memory", known, length);
    } else {
        char text[160];
        struct sysinfo now;
        if (sysinfo(&now) == 0) {
            unsigned long long unit = now.mem_unit;
            int written = snprintf(text, sizeof text, "MemTotal: %llu kB\nMemFree: %llu kB\nBuffers: %llu kB\n",
                                   now.totalram * unit / 1024, now.freeram * unit / 1024, now.bufferram * unit / 1024);
            line_file("memory", text, (size_t)written);
        }
    }
    free(known);
}
