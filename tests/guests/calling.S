/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest whose calls can be drawn by hand. It begins as counting.S does, and has functions named as those of a kernel
 * that are special to whoever follows calls: thunks, entries of interrupts and exceptions, a thread's begin, a system call.
 *
 * Memory: 0x1000 page tables (5 pages), 0x8000 IDT, 0x9000 readings, 0xf000 stack, two more stacks below 0x18000 and
 * 0x1c000.
 */
#include "common.S"

        .set    TABLES, 0x1000
        .set    IDT, 0x8000
        .set    READINGS, 0x9000
        .set    STACK, 0xf000
        .set    THREAD_STACK, 0x18000
        .set    CALL_STACK, 0x1c000

        .macro  times number, function
        movl    $\number, %ecx
1:      call    \function
        decl    %ecx
        jnz     1b
        .endm

        .text
        .code32
protected:
        data_segments
        movl    $TABLES, %edi
        xorl    %eax, %eax
        movl    $0x1400, %ecx
        rep     stosl
        movl    $(TABLES + 0x1007), TABLES              /* identity, and 2 GiB below the top, on one page directory */
        movl    $(TABLES + 0x3007), TABLES + 0xff8
        movl    $(TABLES + 0x2007), TABLES + 0x1000
        movl    $(TABLES + 0x2007), TABLES + 0x3ff0
        movl    $0x87, TABLES + 0x2000
        enter_long_mode 0x101                           /* long mode, system calls */
long_mode:
        movl    $STACK, %esp
        movq    $READINGS, %r12
        movl    $6, %edi
        leaq    HIGH + asm_exc_invalid_op, %rax
        call    gate
        movl    $32, %edi
        leaq    HIGH + asm_sysvec_test, %rax
        call    gate
        lidt    idt_register
        movl    $0xc0000081, %ecx
        xorl    %eax, %eax
        movl    $0x00200018, %edx
        wrmsr
        movl    $0xc0000082, %ecx
        leaq    HIGH + entry_SYSCALL_64, %rax
        movl    $0xffffffff, %edx
        wrmsr
        movl    $0xc0000084, %ecx
        xorl    %eax, %eax
        xorl    %edx, %edx
        wrmsr
        leaq    HIGH + kernel, %rax
        jmpq    *%rax

        .globl  kernel
kernel:
        mark    mark_calls
        times   10, plain
        times   5, outer
        leaq    HIGH + inner, %rax
        times   3, __x86_indirect_thunk_rax
        times   4, interrupted
        times   2, faulty

        mark    mark_threads                            /* another stack, on which somebody waits to begin */
        leaq    HIGH + ret_from_fork_asm, %rax
        movl    $(THREAD_STACK - 8), %edx
        movq    %rax, (%rdx)
        movl    %edx, %r14d
        times   3, switch_stacks

        mark    mark_program
        movl    $3, %ebp
        movl    $program, %ecx
        movl    $2, %r11d
        sysretq
program_done:
        mark    mark_end
        write_readings 4
        end_machine

        .globl  plain, outer, inner, __x86_return_thunk, __x86_indirect_thunk_rax, interrupted, faulty
plain:
        nop
        ret
outer:                                                  /* ends by a jump to another function */
        nop
        jmp     inner
inner:                                                  /* returns by a jump to a thunk */
        nop
        jmp     __x86_return_thunk
__x86_return_thunk:
        ret
__x86_indirect_thunk_rax:                               /* returns to where nobody called from */
        call    1f
2:      pause
        jmp     2b
1:      movq    %rax, (%rsp)
        ret
interrupted:
        nop
        int     $32
        nop
        ret
faulty:
        ud2
        ret

        .globl  asm_sysvec_test, in_handler, asm_exc_invalid_op, switch_stacks, ret_from_fork_asm, worker
asm_sysvec_test:
        call    in_handler
        iretq
in_handler:
        nop
        ret
asm_exc_invalid_op:
        addq    $2, (%rsp)
        iretq
switch_stacks:
        xchgq   %rsp, %r14
        ret
ret_from_fork_asm:
        call    worker
        call    switch_stacks
        jmp     ret_from_fork_asm
worker:
        nop
        ret

        .globl  entry_SYSCALL_64, __x64_sys_read, pipe_read, after
entry_SYSCALL_64:
        cmpl    $99, %eax
        je      program_done
        movq    %rsp, %r13
        movl    $CALL_STACK, %esp
        call    __x64_sys_read
        movq    %r13, %rsp
        sysretq
__x64_sys_read:
        nop
        call    pipe_read
        ret
pipe_read:
        nop
        nop
        ret
after:
gate:
        shll    $4, %edi
        addl    $IDT, %edi
        movl    %eax, %edx
        andl    $0xffff, %edx
        orl     $0x180000, %edx
        movl    %edx, (%rdi)
        andl    $0xffff0000, %eax
        orl     $0x8e00, %eax
        movl    %eax, 4(%rdi)
        movl    $0xffffffff, 8(%rdi)
        ret

        .balign 4096
        .globl  program, program_end
program:                                                /* 12 instructions: three calls, and one that ends it */
        xorl    %eax, %eax
1:      syscall
        decl    %ebp
        jnz     1b
        movl    $99, %eax
        syscall
program_end:
        .balign 8
idt_register:
        .word   16 * 33 - 1
        .quad   IDT
        reset
