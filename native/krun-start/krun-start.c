// SPDX-License-Identifier: Apache-2.0
// Starts one machine with libkrun, which is a library without a program of its own. The library is found when this
// runs.
//
//   krun-start WORD VALUE...
//
//   cpus NUMBER       virtual CPUs (1)
//   memory MIB        memory
//   kernel PATH       an ELF file, or what `format` says
//   format NUMBER     of the kernel, as krun_set_kernel numbers them (1: ELF)
//   words TEXT        the kernel's command line
//   disk PATH         a raw disk, read-only; disks get their names in this order
//   written PATH      a raw disk that is written
//   tap NAME MAC      a network device before a TAP device
//   without pic       no PIC: the I/O APIC is libkrun's, and not the host kernel's, which has both or none
//
// Standard input and output are the machine's serial line. `krun-start --version` says which library was found. Every
// failure is said on standard error, and the status is 71; else libkrun ends this process with the machine.
#include <dlfcn.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY "libkrun.so.1"
#define LOG_ERRORS 1

static void *library;

static _Noreturn void fail(const char *what, const char *why) {
    fprintf(stderr, "krun-start: %s: %s\n", what, why);
    exit(71);
}

// A function of the library, by the type of a variable that holds it.
static void find(const char *name, void *function) {
    void *found = dlsym(library, name);
    if (found == NULL)
        fail("this libkrun lacks a function", name);
    memcpy(function, &found, sizeof found);
}

static uint32_t checked(const char *what, int32_t result) {
    if (result < 0)
        fail(what, strerror(-result));
    return (uint32_t)result;
}

static uint32_t number(const char *word, const char *text, unsigned long most) {
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || value > most)
        fail(word, "no such number");
    return (uint32_t)value;
}

static void add_tap(uint32_t machine, const char *name, const char *text) {
    int32_t (*add_net_tap)(uint32_t, const char *, const uint8_t *, uint32_t, uint32_t);
    unsigned read[6];
    uint8_t mac[6];
    find("krun_add_net_tap", &add_net_tap);
    if (strlen(name) > 15 ||
        sscanf(text, "%2x:%2x:%2x:%2x:%2x:%2x", &read[0], &read[1], &read[2], &read[3], &read[4], &read[5]) != 6)
        fail("tap", "no name and MAC address");
    for (int i = 0; i < 6; i++)
        mac[i] = (uint8_t)read[i];
    checked("krun_add_net_tap", add_net_tap(machine, name, mac, 0, 0));
}

static void add_disk(uint32_t machine, const char *path, bool read_only) {
    static char name[] = "a"; // of each disk another one
    int32_t (*add)(uint32_t, const char *, const char *, bool);
    find("krun_add_disk", &add);
    if (name[0] > 'z')
        fail(path, "too many disks");
    checked("krun_add_disk", add(machine, name, path, read_only));
    name[0]++;
}

// The library refuses it for processors that have none.
static void leave_out(uint32_t machine, const char *what) {
    int32_t (*split)(uint32_t, bool);
    if (strcmp(what, "pic") != 0)
        fail(what, "nothing that can be left out");
    find("krun_split_irqchip", &split);
    checked("krun_split_irqchip", split(machine, true));
}

static void open_library(void) {
    int32_t (*set_log_level)(uint32_t);
    library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        fail("libkrun is not there", dlerror());
    find("krun_set_log_level", &set_log_level);
    checked("krun_set_log_level", set_log_level(LOG_ERRORS));
}

static int say_version(void) {
    struct link_map *map;
    char *file = dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 ? realpath(map->l_name, NULL) : NULL;
    if (file == NULL)
        fail("libkrun", "its file cannot be told");
    printf("%s\n", file);
    return 0;
}

// Without what libkrun adds by itself: an init, a console and a socket of its own.
static uint32_t new_machine(void) {
    static const char *const without[] = {"krun_disable_implicit_init", "krun_disable_implicit_console",
                                          "krun_disable_implicit_vsock"};
    int32_t (*create)(void), (*disable)(uint32_t);
    find("krun_create_ctx", &create);
    uint32_t machine = checked("krun_create_ctx", create());
    for (unsigned i = 0; i < sizeof without / sizeof *without; i++) {
        find(without[i], &disable);
        checked(without[i], disable(machine));
    }
    return machine;
}

int main(int argc, char **argv) {
    const char *kernel = NULL, *words = "";
    uint32_t cpus = 1, memory = 0, format = 1;
    open_library();
    if (argc == 2 && strcmp(argv[1], "--version") == 0)
        return say_version();
    uint32_t machine = new_machine();
    for (char **at = argv + 1; *at != NULL; at += 2) {
        const char *word = at[0], *value = at[1];
        if (value == NULL)
            fail(word, "a value is missing");
        if (strcmp(word, "cpus") == 0)
            cpus = number(word, value, UINT8_MAX);
        else if (strcmp(word, "memory") == 0)
            memory = number(word, value, UINT32_MAX);
        else if (strcmp(word, "format") == 0)
            format = number(word, value, UINT8_MAX);
        else if (strcmp(word, "kernel") == 0)
            kernel = value;
        else if (strcmp(word, "words") == 0)
            words = value;
        else if (strcmp(word, "disk") == 0 || strcmp(word, "written") == 0)
            add_disk(machine, value, *word == 'd');
        else if (strcmp(word, "without") == 0)
            leave_out(machine, value);
        else if (strcmp(word, "tap") == 0 && at[2] != NULL)
            add_tap(machine, value, (at++)[2]);
        else
            fail(word, "no such word");
    }
    if (kernel == NULL || memory == 0)
        fail("machine", "it has no kernel or no memory");
    int32_t (*set_vm_config)(uint32_t, uint8_t, uint32_t), (*add_serial)(uint32_t, int, int), (*enter)(uint32_t);
    int32_t (*set_kernel)(uint32_t, const char *, uint32_t, const char *, const char *);
    find("krun_set_vm_config", &set_vm_config);
    find("krun_set_kernel", &set_kernel);
    find("krun_add_serial_console_default", &add_serial);
    find("krun_start_enter", &enter);
    checked("krun_set_vm_config", set_vm_config(machine, (uint8_t)cpus, memory));
    checked("krun_set_kernel", set_kernel(machine, kernel, format, NULL, words));
    checked("krun_add_serial_console_default", add_serial(machine, 0, 1));
    checked("krun_start_enter", enter(machine));
    return 0;
}
