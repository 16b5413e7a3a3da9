/* SPDX-License-Identifier: Apache-2.0 */
#include "init/settings/settings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "init/base/power_off.h"
#include "init/base/read_file.h"
#include "init/settings/run_volume.h"

#define CONFIG "/.vmtailor/config"
#define MOST (4 << 20)

struct settings settings;

void settings_load(void) {
    settings_default(&settings);
    size_t length;
    char *text = read_file(CONFIG, MOST, &length);
    if (text == NULL)
        fatal("", "open(%s): %s", CONFIG, strerror(errno));
    const char *wrong = settings_read(&settings, text, length);
    if (wrong != NULL)
        fatal("", "%s: %s", CONFIG, wrong);
    if (getenv("VT_RUN") != NULL)
        run_volume_read(&settings);
    if (settings.net == NULL)
        settings.net = getenv("VT_NET");
    /* A kernel without IP_PNP hands on its own word, by which runtimes tell the address. */
    if (settings.net != NULL && strcmp(settings.net, "kernel-word-ip") == 0)
        settings.net = getenv("ip");
}
