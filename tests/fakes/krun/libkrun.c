/* SPDX-License-Identifier: Apache-2.0 */
/* A libkrun that starts nothing: it says which of its functions are called, and with what. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define MACHINE 7

int32_t krun_set_log_level(uint32_t level) {
    return level == 1 ? 0 : -22;
}

int32_t krun_create_ctx(void) {
    return MACHINE;
}

int32_t krun_disable_implicit_init(uint32_t machine) {
    printf("no init of %u\n", machine);
    return 0;
}

int32_t krun_disable_implicit_console(uint32_t machine) {
    printf("no console of %u\n", machine);
    return 0;
}

int32_t krun_disable_implicit_vsock(uint32_t machine) {
    printf("no socket of %u\n", machine);
    return 0;
}

int32_t krun_add_disk(uint32_t machine, const char *name, const char *path, bool read_only) {
    printf("disk %s %s %s of %u\n", name, path, read_only ? "read" : "written", machine);
    return 0;
}

int32_t krun_add_net_tap(uint32_t machine, const char *name, const uint8_t *mac, uint32_t features, uint32_t flags) {
    printf("tap %s %02x%02x%02x%02x%02x%02x %u %u of %u\n", name, mac[0], mac[1], mac[2], mac[3], mac[4], mac[5],
           features, flags, machine);
    return 0;
}

int32_t krun_split_irqchip(uint32_t machine, bool enable) {
    printf("%s of %u\n", enable ? "no pic" : "a pic", machine);
    return 0;
}

int32_t krun_set_vm_config(uint32_t machine, uint8_t cpus, uint32_t mib) {
    printf("%u cpus, %u MiB of %u\n", cpus, mib, machine);
    return 0;
}

int32_t krun_set_kernel(uint32_t machine, const char *path, uint32_t format, const char *initrd, const char *words) {
    printf("kernel %s %u %s |%s| of %u\n", path, format, initrd == NULL ? "alone" : initrd, words, machine);
    return 0;
}

int32_t krun_add_serial_console_default(uint32_t machine, int in, int out) {
    printf("serial %d %d of %u\n", in, out, machine);
    return 0;
}

int32_t krun_start_enter(uint32_t machine) {
    printf("start %u\n", machine);
    return getenv("KRUN_FAILS") != NULL ? -13 : 0;
}
