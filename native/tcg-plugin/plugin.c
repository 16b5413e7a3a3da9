// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A QEMU plugin that counts, without disturbing the guest, what a boot executes: instructions by block, by phase and by
 * owner, and accesses to devices. Loaded as `-plugin FILE,config=FILE,out=FILE`.
 *
 * It cannot read the privilege level, so it goes by address: from `half` on (in the configuration) is the kernel; below
 * is firmware and early kernel code until the kernel proper is reached (`kernel`), and user code from then on. Where
 * firmware stays that the kernel calls (`firmware`), it is told from user code by where it lies in the host's memory.
 *
 * Where the machine is a host itself, by an instruction that QEMU emulates (`guest-entry`), its guest is counted apart:
 * guest.h. That guest has no records of blocks, owners and devices.
 */
#include "blocks.h"
#include "config.h"
#include "counters.h"
#include "die.h"
#include "guest.h"
#include "output.h"
#include "settle.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEVICES 64u

VT_EXPORT int qemu_plugin_version = VT_PLUGIN_API;
VT_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv);

static struct config config;
static bool kernel_seen;
static unsigned kernel_counter, early_counter, firmware_counter, ports_counter;
static uint64_t early_total; // when the kernel proper was reached
static unsigned user_counters[MAX_OWNERS];
static unsigned owner = OWNER_BOOT; // whose code ran last in user space
static uint64_t kernel_by_owner[MAX_OWNERS], kernel_at_switch;
static char *device_names[MAX_DEVICES];
static uint64_t device_accesses[MAX_DEVICES], mmio_total;
static unsigned device_count;

// QEMU 8 and later key blocks by physical address: what the kernel ran at low addresses before it mapped itself high
// (a copying loop, say) and runs again later is the same block to them. From there on it is the kernel's.
static uint64_t kernel_now(void) {
    uint64_t late = kernel_seen ? counter_value(early_counter) - early_total : 0;
    return counter_value(kernel_counter) + late;
}

static uint64_t early_now(void) {
    uint64_t before = kernel_seen ? early_total : counter_value(early_counter);
    return before + counter_value(firmware_counter);
}

static void settle_owner(void) {
    uint64_t now = kernel_now();
    kernel_by_owner[owner] += now - kernel_at_switch;
    kernel_at_switch = now;
}

static void on_user_block(unsigned vcpu, void *userdata) {
    unsigned next = (unsigned)(uintptr_t)userdata;
    (void)vcpu;
    if (next == owner)
        return;
    settle_owner();
    owner = next;
}

static struct totals totals_now(void) {
    struct totals totals = {.early = early_now(), .kernel = kernel_now()};
    for (unsigned i = 0; i < config.owner_count; i++)
        totals.user += counter_value(user_counters[i]);
    totals.ports = counter_value(ports_counter);
    totals.mmio = mmio_total;
    return totals;
}

static struct guest_totals *guest_now(void) {
    static struct guest_totals totals;
    if (!config.guest_entry_size)
        return NULL;
    guest_totals(&totals);
    return &totals;
}

static void end_stretch(int mark) {
    static struct owner_counts before[MAX_OWNERS];
    static uint64_t devices_before[MAX_DEVICES];
    struct owner_counts owners[MAX_OWNERS];
    uint64_t devices[MAX_DEVICES];
    struct totals totals = totals_now();
    settle_owner();
    for (unsigned i = 0; i < config.owner_count; i++) {
        struct owner_counts all = {kernel_by_owner[i], counter_value(user_counters[i])};
        owners[i] = (struct owner_counts){all.kernel - before[i].kernel, all.user - before[i].user};
        before[i] = all;
    }
    for (unsigned i = 0; i < device_count; i++) {
        devices[i] = device_accesses[i] - devices_before[i];
        devices_before[i] = device_accesses[i];
    }
    output_stretch(mark, &totals, owners, config.owner_count, devices, device_count);
    if (config.guest_entry_size)
        output_guest(guest_now());
}

static void on_point(unsigned vcpu, void *userdata) {
    struct point *point = userdata;
    (void)vcpu;
    if (point->done)
        return;
    point->done = !point->every;
    if (point->is_span) {
        struct totals totals = totals_now();
        output_span(point->number, &totals, guest_now());
    } else {
        end_stretch((int)point->number);
    }
}

// Devices beyond the table's end share its last row. QEMU has no name for some, only an address of its own: they go by
// their page in the guest.
static unsigned device_number(const struct qemu_plugin_hwaddr *address) {
    const char *name = qemu_plugin_hwaddr_device_name(address);
    char page[32];
    unsigned i = 0;
    if (!name || !strncmp(name, "anon", 4)) {
        snprintf(page, sizeof(page), "mmio@%" PRIx64, qemu_plugin_hwaddr_phys_addr(address) & ~(uint64_t)0xfff);
        name = page;
    }
    while (i < device_count && strcmp(device_names[i], name))
        i++;
    if (i < device_count)
        return i;
    if (device_count == MAX_DEVICES)
        return MAX_DEVICES - 1;
    device_names[i] = strdup(i == MAX_DEVICES - 1 ? "others" : name);
    if (!device_names[i])
        die("out of memory for device names");
    return device_count++;
}

static void on_memory(unsigned vcpu, qemu_plugin_meminfo_t info, uint64_t vaddr, void *userdata) {
    struct qemu_plugin_hwaddr *address = qemu_plugin_get_hwaddr(info, vaddr);
    (void)vcpu;
    (void)userdata;
    if (!address || !qemu_plugin_hwaddr_is_io(address))
        return;
    mmio_total++;
    device_accesses[device_number(address)]++;
    if (qemu_plugin_mem_is_store(info))
        settle_after(&config, address);
}

// An instruction that accesses ports, behind any prefixes. One that repeats counts once for each element: so it
// executes here.
static bool is_port_access(const struct qemu_plugin_insn *insn) {
    bool in_half = qemu_plugin_insn_vaddr(insn) >= config.half;
    uint8_t code[MAX_INSN_BYTES];
    size_t size, i = 0;
    if (!config.ports.count)
        return false;
    size = insn_bytes(insn, code);
    while (i < size && opcodes_hold(&config.prefixes, code[i], in_half))
        i++;
    return i < size && opcodes_hold(&config.ports, code[i], in_half);
}

// Whether a block is the firmware's, and whoever called it waits. A program may have memory of its own at these virtual
// addresses, but never the firmware's: nothing of a program is translated before the kernel, so that what is then found
// at these addresses shows where in the host's memory the firmware lies.
static bool is_firmware(const struct qemu_plugin_tb *tb) {
    static uintptr_t begin; // the host's address for that of `firmware`
    uint64_t vaddr = qemu_plugin_tb_vaddr(tb);
    uintptr_t host;
    if (vaddr < config.firmware || vaddr >= config.firmware_end)
        return false;
    host = (uintptr_t)qemu_plugin_insn_haddr(qemu_plugin_tb_get_insn(tb, 0)) - (uintptr_t)(vaddr - config.firmware);
    if (!kernel_seen && !begin)
        begin = host;
    return host == begin;
}

static void watch_points(struct qemu_plugin_tb *tb, bool in_guest) {
    size_t count = qemu_plugin_tb_n_insns(tb);
    uint64_t start = qemu_plugin_tb_vaddr(tb), end = block_end(tb);
    struct point *point = config_point_at(&config, start, end);
    if (!point)
        return;
    for (size_t i = 0; i < count; i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
        uint64_t address = qemu_plugin_insn_vaddr(insn);
        for (point = config_point_at(&config, address, address + 1); point; point++) {
            if (point == config.points + config.point_count || point->address != address)
                break;
            if (point->in_guest == in_guest && !point->at_entry)
                qemu_plugin_register_vcpu_insn_exec_cb(insn, on_point, QEMU_PLUGIN_CB_NO_REGS, point);
        }
    }
}

// Where the guest is entered, which is after the instruction's marks.
static void watch_entries(struct qemu_plugin_tb *tb) {
    struct qemu_plugin_insn *entry = guest_entry_in(tb);
    if (!entry)
        return;
    for (unsigned i = 0; i < config.point_count; i++)
        if (config.points[i].at_entry)
            qemu_plugin_register_vcpu_insn_exec_cb(entry, on_point, QEMU_PLUGIN_CB_NO_REGS, &config.points[i]);
    guest_watch_entry(entry);
}

static void count_user(struct qemu_plugin_tb *tb) {
    unsigned whose = config_owner_of(&config, qemu_plugin_tb_vaddr(tb));
    size_t count = qemu_plugin_tb_n_insns(tb);
    qemu_plugin_register_vcpu_tb_exec_cb(tb, on_user_block, QEMU_PLUGIN_CB_NO_REGS, (void *)(uintptr_t)whose);
    if (!config.exact) {
        counter_add_at_block(user_counters[whose], tb, count);
        return;
    }
    for (size_t i = 0; i < count; i++)
        counter_add_at_insn(user_counters[whose], qemu_plugin_tb_get_insn(tb, i), 1);
}

static void count_system(struct qemu_plugin_tb *tb, enum block_class class, unsigned total) {
    struct block *block = block_at(block_of(tb, class));
    block->ports = 0;
    counter_add_at_block(block->entries, tb, 1);
    if (!config.exact)
        counter_add_at_block(total, tb, block->insns);
    for (size_t i = 0; i < block->insns; i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
        if (config.exact) {
            counter_add_at_insn(total, insn, 1);
            counter_add_at_insn(block->executed, insn, 1);
        }
        if (is_port_access(insn)) {
            block->ports++;
            counter_add_at_insn(ports_counter, insn, 1);
        }
        if (config.devices)
            qemu_plugin_register_vcpu_mem_cb(insn, on_memory, QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW, NULL);
    }
}

static void watch_stores(struct qemu_plugin_tb *tb) {
    size_t count = qemu_plugin_tb_n_insns(tb);
    for (size_t i = 0; i < count; i++)
        settle_after_stores(&config, qemu_plugin_tb_get_insn(tb, i));
}

static void on_translation(qemu_plugin_id_t id, struct qemu_plugin_tb *tb) {
    uint64_t vaddr = qemu_plugin_tb_vaddr(tb);
    bool in_guest;
    (void)id;
    if (config.settle_only) {
        if (vaddr >= config.half)
            watch_stores(tb);
        return;
    }
    in_guest = config.guest_entry_size && guest_has(tb);
    watch_points(tb, in_guest); // first, so that what is counted here is not yet counted at the mark
    if (in_guest) {
        guest_count(tb);
        return;
    }
    if (config.guest_entry_size)
        watch_entries(tb);
    if (vaddr >= config.half) {
        if (!kernel_seen && (!config.kernel || block_holds(tb, config.kernel))) {
            early_total = counter_value(early_counter);
            kernel_seen = true;
        }
        count_system(tb, CLASS_KERNEL, kernel_counter);
    } else if (is_firmware(tb)) {
        count_system(tb, CLASS_EARLY, firmware_counter);
    } else if (!kernel_seen) {
        count_system(tb, CLASS_EARLY, early_counter);
    } else {
        count_user(tb);
    }
}

static void at_exit(qemu_plugin_id_t id, void *userdata) {
    (void)id;
    (void)userdata;
    end_stretch(-1);
    output_close(device_names, device_count);
}

int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv) {
    const char *from = NULL, *to = NULL, *wrong;
    for (int i = 0; i < argc; i++) {
        if (!strncmp(argv[i], "config=", 7))
            from = argv[i] + 7;
        else if (!strncmp(argv[i], "out=", 4))
            to = argv[i] + 4;
        else
            die("unknown argument %s", argv[i]);
    }
    if (!from || !to)
        die("config=FILE and out=FILE are needed");
    wrong = config_read(&config, from);
    if (wrong)
        die("%s", wrong);
    if (strcmp(info->target_name, config.target) || !info->system_emulation || info->system.max_vcpus != 1)
        die("only a whole %s machine with one CPU can be counted", config.target);
    kernel_counter = counter_new();
    early_counter = counter_new();
    firmware_counter = counter_new();
    ports_counter = counter_new();
    for (unsigned i = 0; i < config.owner_count; i++)
        user_counters[i] = counter_new();
    if (config.guest_entry_size)
        guest_prepare(&config);
    output_open(to, &config);
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
    qemu_plugin_register_atexit_cb(id, at_exit, NULL);
    return 0;
}
