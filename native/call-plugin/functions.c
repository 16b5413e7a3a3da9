// SPDX-License-Identifier: GPL-2.0-or-later
#include "functions.h"

#include "tcg-plugin/die.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_OPCODES 16u

struct opcode_row {
    enum insn_kind kind;
    unsigned value, mask, next, next_mask;
};

static struct opcode_row opcodes[MAX_OPCODES];
static unsigned opcode_count;
static struct function *functions;
static size_t count, room;
static uint64_t stack_bytes = 16384, image_map;
static unsigned most_nodes = 1u << 20;
static const struct function none = {.object = -1};

static enum insn_kind kind_named(const char *name) {
    static const char *const names[INSN_KINDS] = {"", "call", "return", "interrupt-return"};
    enum insn_kind kind = INSN_CALL;
    while (kind < INSN_KINDS && strcmp(name, names[kind]))
        kind++;
    return kind;
}

static bool add_opcode(const char *line) {
    struct opcode_row row;
    char name[24];
    if (opcode_count == MAX_OPCODES ||
        sscanf(line, "opcode %23s %x %x %x %x", name, &row.value, &row.mask, &row.next, &row.next_mask) != 5)
        return false;
    row.kind = kind_named(name);
    opcodes[opcode_count++] = row;
    return row.kind != INSN_KINDS;
}

static bool add_function(const char *line) {
    struct function one;
    unsigned long long address;
    if (sscanf(line, "function %llx %x %d", &address, &one.flags, &one.object) != 3)
        return false;
    one.address = address;
    if (count && functions[count - 1].address >= one.address)
        return false;
    if (count == room) {
        room = room ? room * 2 : 65536;
        functions = realloc(functions, room * sizeof(*functions));
        if (!functions)
            die("out of memory for %zu functions", room);
    }
    functions[count++] = one;
    return true;
}

static bool statement(const char *line) {
    unsigned long long number;
    if (!strncmp(line, "function ", 9))
        return add_function(line);
    if (!strncmp(line, "opcode ", 7))
        return add_opcode(line);
    if (sscanf(line, "stack %llx", &number) == 1) {
        stack_bytes = number;
        return number && !(number & (number - 1));
    }
    if (sscanf(line, "nodes %llx", &number) == 1) {
        most_nodes = (unsigned)number;
        return number > 0 && number < 1u << 28;
    }
    if (sscanf(line, "image-map %llx", &number) == 1) {
        image_map = number;
        return true;
    }
    return false;
}

void functions_read(const char *path) {
    char line[256];
    unsigned number = 0;
    FILE *file = fopen(path, "r");
    if (!file)
        die("open %s: %s", path, strerror(errno));
    while (fgets(line, sizeof(line), file)) {
        number++;
        if (!statement(line))
            die("%s, line %u: no statement, or functions are not in ascending order", path, number);
    }
    if (ferror(file))
        die("read %s: %s", path, strerror(errno));
    fclose(file);
    if (!count || !opcode_count)
        die("%s: functions and opcodes must be said", path);
}

unsigned functions_count(void) {
    return (unsigned)count - 1; // the last one ends the table
}

uint64_t functions_stack_bytes(void) {
    return stack_bytes;
}

unsigned functions_most_nodes(void) {
    return most_nodes;
}

uint64_t functions_image_map(void) {
    return image_map;
}

// A function reaches to the next one.
unsigned function_at(uint64_t address) {
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (functions[middle].address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? (unsigned)(low - 1) : functions_count();
}

const struct function *function_numbered(unsigned number) {
    return number < functions_count() ? &functions[number] : &none;
}

enum insn_kind insn_kind_of(const uint8_t *code, size_t size) {
    for (unsigned i = 0; size && i < opcode_count; i++) {
        const struct opcode_row *row = &opcodes[i];
        if ((code[0] & row->mask) == row->value &&
            (!row->next_mask || (size > 1 && (code[1] & row->next_mask) == row->next)))
            return row->kind;
    }
    return INSN_OTHER;
}
