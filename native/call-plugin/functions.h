// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The kernel's functions, and how its code calls and returns: a file beside the configuration, one statement a line.
 *
 *     opcode call|return|interrupt-return VALUE MASK NEXT NEXT_MASK
 *                         an instruction of this kind: its byte behind the prefixes, under a mask, and the one after it
 *     stack BYTES         size and alignment of a kernel stack, a power of two
 *     nodes COUNT         the most nodes of the tree; what is called beyond goes to one node for each function
 *     image-map OFFSET    virtual minus physical address of the kernel's image
 *     function ADDRESS FLAGS OBJECT
 *                         a function begins there, in ascending order, the last one only ends the table; flags are the
 *                         bits below; OBJECT is the number of what calls are made on that it is a method of, or -1
 *
 * Numbers are hexadecimal, but for OBJECT.
 */
#ifndef VT_FUNCTIONS_H
#define VT_FUNCTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum function_flags {
    IS_CALL = 1,      // does a system call's work, and names it
    IS_THUNK = 2,     // goes on to where its caller, or who jumped to it, wanted to go
    IS_INTERRUPT = 4, // the processor enters it for an interrupt
    IS_EXCEPTION = 8, // or for a fault of the code it interrupts
    IS_SOFT = 16,     // does deferred work of interrupts
    IS_THREAD = 32,   // a new thread begins there
    IS_STUBS = 64,    // the processor enters it at many places
};

enum insn_kind { INSN_OTHER, INSN_CALL, INSN_RETURN, INSN_INTERRUPT_RETURN, INSN_KINDS };

struct function {
    uint64_t address;
    unsigned flags;
    int object;
};

// Read the file. Ends QEMU when it is wrong.
void functions_read(const char *path);

unsigned functions_count(void);
uint64_t functions_stack_bytes(void);
unsigned functions_most_nodes(void);
uint64_t functions_image_map(void);

// The number of the function that an address lies in; functions_count() where there is none.
unsigned function_at(uint64_t address);

// `number` may be functions_count(): code of no function.
const struct function *function_numbered(unsigned number);

// What an instruction is, by the bytes behind its prefixes.
enum insn_kind insn_kind_of(const uint8_t *code, size_t size);

#endif
