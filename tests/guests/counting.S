/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest whose instructions can be counted by hand. It stands in for the BIOS, enters long mode with its image mapped a
 * second time in the upper half, and does there, between marks, what its labels say. Before each mark it reads the TSC,
 * which under -icount shift=0 counts instructions; at the end it writes all readings to the serial port, 8 bytes each.
 *
 * Memory: 0x1000 page tables (5 pages), 0x8000 IDT, 0x9000 readings, 0xf000 stack.
 */
#include "common.S"

        .set    TABLES, 0x1000
        .set    IDT, 0x8000
        .set    READINGS, 0x9000
        .set    STACK, 0xf000

        .text
        .code32
protected:
        data_segments
        movl    $TABLES, %edi
        xorl    %eax, %eax
        movl    $0x2400, %ecx
        rep     stosl
        movl    $(TABLES + 0x1007), TABLES              /* identity, and 2 GiB below the top, on one page directory */
        movl    $(TABLES + 0x3007), TABLES + 0xff8
        movl    $(TABLES + 0x2007), TABLES + 0x1000
        movl    $(TABLES + 0x4003), TABLES + 0x1018
        movl    $(TABLES + 0x2007), TABLES + 0x3ff0
        movl    $0xfee00083, TABLES + 0x4000 + 8 * 0x1f7
        movl    $TABLES + 0x2000, %edi
        movl    $0x87, %eax
        movl    $512, %ecx
1:      movl    %eax, (%edi)
        addl    $0x200000, %eax
        addl    $8, %edi
        loop    1b
        enter_long_mode 0x101                           /* long mode, system calls */
long_mode:
        movl    $STACK, %esp
        movq    $READINGS, %r12
        movl    $6, %edi
        leaq    HIGH + on_undefined, %rax
        call    gate
        movl    $14, %edi
        leaq    HIGH + on_page_fault, %rax
        call    gate
        lidt    idt_register
        movl    $0xc0000081, %ecx
        xorl    %eax, %eax
        movl    $0x00200018, %edx
        wrmsr
        movl    $0xc0000082, %ecx
        leaq    HIGH + on_call, %rax
        movl    $0xffffffff, %edx
        wrmsr
        movl    $0xc0000084, %ecx
        xorl    %eax, %eax
        xorl    %edx, %edx
        wrmsr
        leaq    HIGH + kernel, %rax
        jmpq    *%rax

        .globl  kernel
kernel:                                                 /* from here on in the upper half, until user code is called */
        mark    mark_loop
        movl    $1000, %ecx
1:      decl    %ecx
        jnz     1b

        mark    mark_ports                              /* 7 port accesses, 3 of them by one repeated instruction */
        movl    $0x80, %edx
        inb     %dx, %al
        inb     $0x80, %al
        outl    %eax, %dx
        outw    %ax, $0x80
        movl    $READINGS + 0x800, %esi
        movl    $3, %ecx
        rep     outsb

        mark    mark_mmio                               /* 20 accesses to the local APIC, in the middle of a block */
        movl    $0xfee00000, %ebx
        movl    $10, %ecx
1:      movl    0x20(%rbx), %eax
        movl    %eax, 0x80(%rbx)
        nop
        nop
        decl    %ecx
        jnz     1b

        mark    mark_faults                             /* 10 page faults and 10 undefined instructions, in mid-block */
        movl    $10, %ecx
1:      movl    $0, TABLES + 0x2008
        invlpg  0x200000
        nop
        movl    %ecx, 0x200000
        nop
        ud2
        nop
        decl    %ecx
        jnz     1b

        mark    mark_first                              /* the first user program: 1500 instructions, then 2002 for it */
        movl    $500, %ebp
        movl    $first, %ecx
        leaq    HIGH + after_first, %rbx
        movl    $2, %r11d
        sysretq
after_first:
        movl    $1000, %ecx
1:      decl    %ecx
        jnz     1b

        mark    mark_second
        movl    $100, %ebp
        movl    $second, %ecx
        leaq    HIGH + after_second, %rbx
        movl    $2, %r11d
        sysretq
after_second:
        movl    $300, %ecx
1:      call    spanned
        decl    %ecx
        jnz     1b

        mark    mark_end
        write_readings 7
        end_machine

        .globl  spanned
spanned:
        nop
        ret

on_call:
        jmpq    *%rbx

on_undefined:
        addq    $2, (%rsp)
        iretq

on_page_fault:
        addq    $8, %rsp
        movl    $0x200087, TABLES + 0x2008
        iretq

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
        .globl  first, second, second_end
first:                                                  /* 3 instructions for each of %ebp rounds, and the call */
        nop
        decl    %ebp
        jnz     first
        syscall
        .balign 4096
second:
        nop
        decl    %ebp
        jnz     second
        syscall
second_end:
        .balign 8
idt_register:
        .word   16 * 16 - 1
        .quad   IDT
        reset
