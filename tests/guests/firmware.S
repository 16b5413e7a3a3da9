/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest of 64-bit RISC-V whose instructions can be counted by hand: firmware that stays and is called, a kernel in the
 * upper half, and a program that has memory of its own at the very addresses of the firmware. It is linked where its
 * parts lie physically; the sections' places are those of the test (tests/contract/test_plugin_firmware.py).
 */
        .set    HIGH, 0xffffffff80000000                /* where the kernel sees the begin of memory */
        .set    MEMORY, 0x80000000
        .set    TABLES, 0x80600000
        .set    POWER, 0x100000                         /* the test device of `virt` */
        .set    LEAF, 0xcf                              /* valid, readable, writable, executable, accessed, written */
        .set    OF_USER, 0x10
        .option norvc

        .section .firmware, "ax"
        .globl  _start
_start:
        lla     t0, call
        csrw    mtvec, t0
        li      t0, -1                                  /* all of memory is for everybody */
        csrw    pmpaddr0, t0
        li      t0, 0x1f
        csrw    pmpcfg0, t0
        li      t1, TABLES
        li      t0, ((TABLES + 0x1000) >> 2) + 1        /* at 2 GiB the program's, 2 MiB */
        sd      t0, 2 * 8(t1)
        li      t0, (MEMORY >> 2) + LEAF
        li      t2, 510 * 8                             /* 2 GiB below the end the kernel's, 1 GiB */
        add     t2, t2, t1
        sd      t0, (t2)
        li      t0, ((MEMORY + 0x200000) >> 2) + LEAF + OF_USER
        li      t2, 0x1000
        add     t2, t2, t1
        sd      t0, (t2)
        li      t0, (8 << 60) + (TABLES >> 12)
        csrw    satp, t0
        sfence.vma
        li      t0, 1 << 8                              /* what programs call is the kernel's */
        csrw    medeleg, t0
        li      t0, 3 << 11
        csrc    mstatus, t0
        li      t0, 1 << 11
        csrs    mstatus, t0
        lla     t0, kernel
        li      t1, HIGH - MEMORY
        add     t0, t0, t1
        csrw    mepc, t0
        mret

        .balign 4
call:                                                   /* 5 instructions, or the end */
        bnez    a7, off
        csrr    t0, mepc
        addi    t0, t0, 4
        csrw    mepc, t0
        mret
off:
        li      t0, POWER
        li      t1, 0x5555
        sw      t1, (t0)
1:      j       1b

        .section .program, "ax"
        .globl  program
program:                                                /* 3 instructions for each of 50 rounds, and 2 */
        nop
        addi    s0, s0, -1
        bnez    s0, program
        li      a7, 0
        ecall

        .section .kernel, "ax"
        .globl  kernel
kernel:                                                 /* 5 instructions */
        lla     t0, on_call
        csrw    stvec, t0
        li      a7, 0
        li      s0, 100
        .globl  mark_calls
mark_calls:                                             /* 3 instructions for each of 100 rounds */
        ecall
        addi    s0, s0, -1
        bnez    s0, mark_calls
        .globl  mark_program
mark_program:                                           /* 7 instructions */
        li      t0, 1 << 8
        csrc    sstatus, t0
        li      t0, 1
        slli    t0, t0, 31
        csrw    sepc, t0
        li      s0, 50
        sret

        .balign 4
on_call:                                                /* a call of the firmware while the program waits */
        ecall
        .globl  mark_end
mark_end:
        li      a7, 1
        ecall
