/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A host with a guest of its own, under AMD's SVM, whose instructions can be counted by hand. It stands in for the BIOS,
 * and enters long mode with its image mapped a second time in the upper half. Between marks it enters its guest, which
 * does what its labels say; the guest's code is in the same image, so that both have code at the same addresses. Before
 * each mark it reads the TSC, which under -icount shift=0 counts instructions; at the end it writes all readings to the
 * serial port, 8 bytes each.
 *
 * Memory: 0x1000 page tables (4 pages), 0x5000 the guest's own page tables (4 pages), 0x9000 readings, 0xa000 the guest's
 * state (VMCB), 0xb000 the host's, 0xc000 nested page tables (4 pages), 0x10000 end of the guest's stack, 0x20000 of the
 * host's, 4 MiB the guest's own copy of the first 2 MiB, 6 MiB a page that it misses.
 */
#include "common.S"

        .set    APIC, 0xfee00000
        .set    TABLES, 0x1000
        .set    OWN_TABLES, 0x5000
        .set    READINGS, 0x9000
        .set    VMCB, 0xa000
        .set    HOST_STATE, 0xb000
        .set    NESTED, 0xc000
        .set    GUEST_STACK, 0x18000
        .set    STACK, 0x20000
        .set    COPY, 0x400000
        .set    MISSED, 0x600000
        .set    EXIT_INTERRUPT, 0x60
        .set    EXIT_CALL, 0x81
        .set    EXIT_MEMORY, 0x400

        /* One page directory for the identity and for 2 GiB below the top; the APIC beside it. 2 MiB pages. */
        .macro  tables at
        movl    $(\at + 0x1007), \at
        movl    $(\at + 0x1007), \at + 0xff8
        movl    $(\at + 0x2007), \at + 0x1000
        movl    $(\at + 0x3007), \at + 0x1018
        movl    $(\at + 0x2007), \at + 0x1ff0
        movl    $0xfee00087, \at + 0x3000 + 8 * 0x1f7
        movl    $\at + 0x2000, %edi
        movl    $0x87, %eax
        movl    $512, %ecx
1:      movl    %eax, (%edi)
        addl    $0x200000, %eax
        addl    $8, %edi
        loop    1b
        .endm

        .macro  segment at, selector, attributes
        movw    $\selector, VMCB + 0x400 + \at
        movw    $\attributes, VMCB + 0x402 + \at
        movl    $0xffffffff, VMCB + 0x404 + \at
        .endm

        .macro  write_msr number, low
        movl    $\number, %ecx
        movl    $\low, %eax
        xorl    %edx, %edx
        wrmsr
        .endm

        /* 5 instructions and VMRUN, then the one behind it; the guest keeps %r13. */
        .macro  enter where
        movabsq $\where, %rcx
        movabsq $(HIGH + 9f), %r13
        jmp     run
9:
        .endm

        .text
        .code32
protected:
        data_segments
        movl    $TABLES, %edi
        xorl    %eax, %eax
        movl    $0x3c00, %ecx
        rep     stosl
        tables  TABLES
        tables  OWN_TABLES
        tables  NESTED
        movl    $(COPY + 0x87), OWN_TABLES + 0x2000
        movl    $0, NESTED + 0x2000 + 8 * (MISSED >> 21)
        movl    $0xf0000, %esi
        movl    $(COPY + 0xf0000), %edi
        movl    $0x4000, %ecx
        rep     movsl
        enter_long_mode 0x1100                          /* long mode, SVM */
long_mode:
        movl    $STACK, %esp
        movq    $READINGS, %r12
        write_msr 0xc0010117, HOST_STATE
        segment 0x00, 0x10, 0xc93
        segment 0x10, 0x18, 0xa9b
        segment 0x20, 0x10, 0xc93
        segment 0x30, 0x10, 0xc93
        movl    $0x1, VMCB + 0x0c                       /* interrupts leave the guest, and VMMCALL */
        movl    $0x3, VMCB + 0x10
        movl    $1, VMCB + 0x58
        movl    $1, VMCB + 0x90                         /* nested paging */
        movl    $NESTED, VMCB + 0xb0
        movl    $0x1500, VMCB + 0x4d0
        movq    %cr4, %rax
        movq    %rax, VMCB + 0x548
        movl    $TABLES, VMCB + 0x550
        movq    %cr0, %rax
        movq    %rax, VMCB + 0x558
        movl    $0x400, VMCB + 0x560
        movl    $0xffff0ff0, VMCB + 0x568
        movl    $2, VMCB + 0x570
        movl    $GUEST_STACK, VMCB + 0x5d8
        movabsq $(HIGH + kernel), %rax
        jmpq    *%rax

        .globl  kernel
kernel:                                                 /* from here on in the upper half */
        mark    mark_host
        movl    $1000, %ecx
        call    work

        mark    mark_early                              /* the guest at low addresses, before its own kernel */
        enter   guest_early

        mark    mark_shared                             /* the very code of the host, in the same memory */
        enter   HIGH + guest_kernel

        mark    mark_again                              /* what was early before, once more */
        enter   guest_early

        mark    mark_own                                /* the guest's own memory at the same addresses, three times */
        movl    $OWN_TABLES, VMCB + 0x550
        movl    $1, VMCB + 0x5c
        movl    $3, %ebp
1:      enter   HIGH + guest_behind
        decl    %ebp
        jnz     1b

        mark    mark_user                               /* a program of the guest's */
        enter   HIGH + guest_program

        mark    mark_memory                             /* a page that is missing in the nested tables */
        enter   HIGH + guest_memory
        cmpl    $EXIT_MEMORY, VMCB + 0x70
        jne     fail
        movl    $(MISSED + 0x87), NESTED + 0x2000 + 8 * (MISSED >> 21)
        movabsq $(HIGH + 1f), %r13
        jmp     again
1:      cmpl    $EXIT_CALL, VMCB + 0x70
        jne     fail

        mark    mark_interrupt                          /* left ten times before its first instruction */
        movl    $APIC, %ebx
        movl    $0x1ff, 0xf0(%rbx)
        movl    $0x40020, 0x300(%rbx)
        movl    $0x202, VMCB + 0x570
        movl    $10, %ebp
1:      enter   HIGH + guest_kernel
        cmpl    $EXIT_INTERRUPT, VMCB + 0x70
        jne     fail
        decl    %ebp
        jnz     1b

        mark    mark_end
        write_readings 9
fail:
        end_machine

run:
        movq    %rcx, VMCB + 0x578
again:
        movl    $VMCB, %eax
        vmrun
        .globl  behind
behind:
        jmpq    *%r13

        .globl  work
work:                                                   /* 2 instructions for each of %ecx, and one */
        decl    %ecx
        jnz     work
        ret

guest_early:                                            /* 1 + 2 × 50 + 1 */
        movl    $50, %ecx
1:      decl    %ecx
        jnz     1b
        vmmcall

guest_kernel:                                           /* 2 + 2 × 500 + 1 + 1 */
        movl    $500, %ecx
        call    work
        vmmcall

guest_behind:                                           /* 3, the jump behind VMRUN, 2 */
        movq    %r13, %r14
        movabsq $(HIGH + 1f), %r13
        jmp     behind
1:      movq    %r14, %r13
        vmmcall

guest_program:                                          /* 2 and 1 */
        movl    $program, %eax
        jmpq    *%rax
guest_program_end:
        vmmcall

guest_memory:                                           /* 1, and what is begun twice, and 1 */
        nop
        movl    %ecx, MISSED
        vmmcall

        .balign 4096
        .globl  program
program:                                                /* 1 + 3 × 100 + 2, at a low address */
        movl    $100, %ecx
1:      nop
        decl    %ecx
        jnz     1b
        movabsq $(HIGH + guest_program_end), %rax
        jmpq    *%rax

        reset
