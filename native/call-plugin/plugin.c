// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A QEMU plugin that follows the calls of a kernel: what each call executes, along which path, and for whom. Loaded as
 * `-plugin FILE,config=FILE,functions=FILE,out=FILE`; the configuration is that of the plugin that counts, and what
 * counts as whose is the same as there.
 *
 * It sees neither registers nor memory, but where a call pushes its return address and where a return pops one: so it
 * knows the stack, and by it the task, whatever switches between them.
 */
#include "functions.h"
#include "graph.h"
#include "tcg-plugin/blocks.h"
#include "tcg-plugin/config.h"
#include "tcg-plugin/counters.h"
#include "tcg-plugin/die.h"
#include "tcg-plugin/settle.h"
#include "writer.h"

#include <stdlib.h>
#include <string.h>

VT_EXPORT int qemu_plugin_version = VT_PLUGIN_API;
VT_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv);

#define PLACES (1u << 16)
#define MAX_PLACES (1u << 22)

static struct config config;
static bool kernel_seen;
static unsigned kernel_counter, early_counter, user_counters[MAX_OWNERS];
static uint64_t early_total; // when the kernel proper was reached

// Late ones: as in the other plugin.
static uint64_t kernel_now(void) {
    uint64_t late = kernel_seen ? counter_value(early_counter) - early_total : 0;
    return counter_value(kernel_counter) + late;
}

static void end_stretch(int mark) {
    static uint64_t before[MAX_OWNERS];
    uint64_t users[MAX_OWNERS];
    struct executed now = {.early = kernel_seen ? early_total : counter_value(early_counter)};
    graph_settle();
    now.kernel = kernel_now();
    for (unsigned i = 0; i < config.owner_count; i++) {
        uint64_t all = counter_value(user_counters[i]);
        users[i] = all - before[i];
        before[i] = all;
        now.user += all;
    }
    writer_stretch(mark, &now, users, config.owner_count);
}

static void on_point(unsigned vcpu, void *userdata) {
    struct point *point = userdata;
    (void)vcpu;
    if (point->done)
        return;
    point->done = !point->every;
    end_stretch((int)point->number);
}

static void on_kernel_block(unsigned vcpu, void *userdata) {
    (void)vcpu;
    graph_block(userdata);
}

static void on_early_block(unsigned vcpu, void *userdata) {
    (void)vcpu;
    if (kernel_seen)
        graph_block(userdata);
}

static void on_user_block(unsigned vcpu, void *userdata) {
    (void)vcpu;
    graph_user_block((unsigned)(uintptr_t)userdata);
}

// QEMU 7.2 confuses loads and stores when it is to tell of one kind only: both are asked for, and told apart here.
static void on_call(unsigned vcpu, qemu_plugin_meminfo_t info, uint64_t vaddr, void *userdata) {
    (void)vcpu;
    (void)userdata;
    if (qemu_plugin_mem_is_store(info))
        graph_call(vaddr);
}

static void on_return(unsigned vcpu, qemu_plugin_meminfo_t info, uint64_t vaddr, void *userdata) {
    (void)vcpu;
    (void)userdata;
    if (!qemu_plugin_mem_is_store(info))
        graph_return(vaddr);
}

static void on_interrupt_return(unsigned vcpu, void *userdata) {
    (void)vcpu;
    graph_interrupt_return((uint64_t)(uintptr_t)userdata);
}

static enum insn_kind kind_of(const struct qemu_plugin_insn *insn) {
    uint8_t code[MAX_INSN_BYTES];
    size_t size = insn_bytes(insn, code), i = 0;
    while (i < size && opcodes_hold(&config.prefixes, code[i], true))
        i++;
    return insn_kind_of(code + i, size - i);
}

// The place of a block's begin: the same one however often it is translated.
static struct place *place_of(struct qemu_plugin_tb *tb, uint64_t offset) {
    static struct known {
        struct place place;
        struct known *next;
    } * known[PLACES];
    static unsigned count;
    uint64_t address = qemu_plugin_tb_vaddr(tb) + offset;
    struct known **list = &known[(address * 0x9e3779b97f4a7c15u >> 32) % PLACES], *one = *list;
    while (one && one->place.address != address)
        one = one->next;
    if (one)
        return &one->place;
    one = ++count <= MAX_PLACES ? malloc(sizeof(*one)) : NULL;
    if (!one)
        die("no room for the %uth block of the kernel", count);
    unsigned number = function_at(address);
    const struct function *function = function_numbered(number);
    bool at_start = number == functions_count() || address == function->address;
    one->place = (struct place){.address = address, .function = number, .at_start = at_start};
    one->place.flags = at_start || function->flags & IS_STUBS ? function->flags : 0;
    one->next = *list;
    *list = one;
    return &one->place;
}

static void watch_points(struct qemu_plugin_tb *tb) {
    struct point *end = config.points + config.point_count;
    size_t count = qemu_plugin_tb_n_insns(tb);
    if (!config_point_at(&config, qemu_plugin_tb_vaddr(tb), block_end(tb)))
        return;
    for (size_t i = 0; i < count; i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
        uint64_t address = qemu_plugin_insn_vaddr(insn);
        struct point *point = config_point_at(&config, address, address + 1);
        for (; point && point != end && point->address == address; point++)
            if (!point->is_span)
                qemu_plugin_register_vcpu_insn_exec_cb(insn, on_point, QEMU_PLUGIN_CB_NO_REGS, point);
    }
}

static void watch_kernel(struct qemu_plugin_tb *tb) {
    size_t count = qemu_plugin_tb_n_insns(tb);
    qemu_plugin_register_vcpu_tb_exec_cb(tb, on_kernel_block, QEMU_PLUGIN_CB_NO_REGS, place_of(tb, 0));
    for (size_t i = 0; i < count; i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
        uint64_t behind = qemu_plugin_insn_vaddr(insn) + qemu_plugin_insn_size(insn);
        enum insn_kind kind = kind_of(insn);
        counter_add_at_insn(kernel_counter, insn, 1);
        if (kind == INSN_CALL)
            qemu_plugin_register_vcpu_mem_cb(insn, on_call, QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW, NULL);
        else if (config.devices && kind != INSN_RETURN)
            settle_after_stores(&config, insn);
        if (kind == INSN_RETURN)
            qemu_plugin_register_vcpu_mem_cb(insn, on_return, QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW, NULL);
        if (kind == INSN_INTERRUPT_RETURN)
            qemu_plugin_register_vcpu_insn_exec_cb(insn, on_interrupt_return, QEMU_PLUGIN_CB_NO_REGS,
                                                   (void *)(uintptr_t)behind);
    }
}

static void watch_early(struct qemu_plugin_tb *tb) {
    size_t count = qemu_plugin_tb_n_insns(tb);
    struct place *place = place_of(tb, functions_image_map());
    qemu_plugin_register_vcpu_tb_exec_cb(tb, on_early_block, QEMU_PLUGIN_CB_NO_REGS, place);
    for (size_t i = 0; i < count; i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
        counter_add_at_insn(early_counter, insn, 1);
        if (config.devices)
            settle_after_stores(&config, insn);
    }
}

static void watch_user(struct qemu_plugin_tb *tb) {
    unsigned whose = config_owner_of(&config, qemu_plugin_tb_vaddr(tb));
    size_t count = qemu_plugin_tb_n_insns(tb);
    qemu_plugin_register_vcpu_tb_exec_cb(tb, on_user_block, QEMU_PLUGIN_CB_NO_REGS, (void *)(uintptr_t)whose);
    for (size_t i = 0; i < count; i++)
        counter_add_at_insn(user_counters[whose], qemu_plugin_tb_get_insn(tb, i), 1);
}

static void on_translation(qemu_plugin_id_t id, struct qemu_plugin_tb *tb) {
    (void)id;
    watch_points(tb); // first, so that what is counted here is not yet counted at the mark
    if (qemu_plugin_tb_vaddr(tb) >= config.half) {
        if (!kernel_seen && (!config.kernel || block_holds(tb, config.kernel))) {
            early_total = counter_value(early_counter);
            kernel_seen = true;
        }
        watch_kernel(tb);
    } else if (!kernel_seen) {
        watch_early(tb);
    } else {
        watch_user(tb);
    }
}

static void at_exit(qemu_plugin_id_t id, void *userdata) {
    (void)id;
    (void)userdata;
    end_stretch(-1);
    writer_close();
}

int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv) {
    const char *from = NULL, *functions = NULL, *to = NULL, *wrong;
    for (int i = 0; i < argc; i++) {
        if (!strncmp(argv[i], "config=", 7))
            from = argv[i] + 7;
        else if (!strncmp(argv[i], "functions=", 10))
            functions = argv[i] + 10;
        else if (!strncmp(argv[i], "out=", 4))
            to = argv[i] + 4;
        else
            die("unknown argument %s", argv[i]);
    }
    if (!from || !functions || !to)
        die("config=FILE, functions=FILE and out=FILE are needed");
    wrong = config_read(&config, from);
    if (wrong)
        die("%s", wrong);
    if (strcmp(info->target_name, config.target) || !info->system_emulation || info->system.max_vcpus != 1)
        die("only a whole %s machine with one CPU can be followed", config.target);
    if (config.firmware_end || config.guest_entry_size)
        die("calls are not followed where firmware stays, nor into a guest of the machine's own");
    functions_read(functions);
    kernel_counter = counter_new();
    early_counter = counter_new();
    for (unsigned i = 0; i < config.owner_count; i++)
        user_counters[i] = counter_new();
    graph_prepare(kernel_now);
    writer_open(to, &config);
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
    qemu_plugin_register_atexit_cb(id, at_exit, NULL);
    return 0;
}
