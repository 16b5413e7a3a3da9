/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parts of the guests that stand in for the BIOS and whose instructions can be counted by hand. Such a guest sets
 * TABLES and READINGS, begins at `protected` in 32-bit code, and ends its image by `reset`.
 */
        .set    COM1, 0x3f8
        .set    HIGH, 0xffffffff80000000

        .macro  mark name
        rdtsc
        movl    %eax, (%r12)
        movl    %edx, 4(%r12)
        .globl  \name
\name:
        addq    $8, %r12
        .endm

        .macro  data_segments
        movl    $0x10, %eax
        movl    %eax, %ds
        movl    %eax, %es
        movl    %eax, %ss
        .endm

        /* Goes on at `long_mode`; `features` are bits of the register EFER. */
        .macro  enter_long_mode features
        movl    %cr4, %eax
        orl     $0x20, %eax
        movl    %eax, %cr4
        movl    $TABLES, %eax
        movl    %eax, %cr3
        movl    $0xc0000080, %ecx
        rdmsr
        orl     $\features, %eax
        wrmsr
        movl    %cr0, %eax
        orl     $0x80000001, %eax
        movl    %eax, %cr0
        ljmp    $0x18, $long_mode
        .code64
        .endm

        /* Writes the first `count` readings to the serial port. */
        .macro  write_readings count
        movl    $COM1, %edx
        movl    $READINGS, %esi
        movl    $(\count * 8), %ecx
1:      lodsb
        outb    %al, %dx
        decl    %ecx
        jnz     1b
        .endm

        /* A triple fault. */
        .macro  end_machine
        lidt    nothing
        int3
        .endm

        .macro  reset
        .balign 8
nothing:
        .word   0
        .quad   0
        .balign 8
gdt:
        .quad   0
        .quad   0x00cf9a000000ffff                      /* 0x08 32-bit code */
        .quad   0x00cf92000000ffff                      /* 0x10 data */
        .quad   0x00af9a000000ffff                      /* 0x18 64-bit code */
        .quad   0x00cf92000000ffff                      /* 0x20 data */
        .quad   0x00cff2000000ffff                      /* 0x28 user data */
        .quad   0x00affa000000ffff                      /* 0x30 user 64-bit code */
gdt_register:
        .word   . - gdt - 1
        .long   gdt

        .org    0xff00
        .code16
real_mode:
        cli
        lgdtl   %cs:(gdt_register - 0xf0000)
        movl    %cr0, %eax
        orb     $1, %al
        movl    %eax, %cr0
        ljmpl   $8, $protected
        .org    0xfff0
        jmp     real_mode
        .org    0xffff
        .byte   0
        .endm
