/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest that runs instead of firmware, from address 0, and does in a millisecond what kernels do: translation and changes
 * of page tables, exceptions, vectors and exclusive accesses, user mode and back, interrupts of its own timer. It says
 * "VTKVM ok" on the serial line and switches the machine off. Where KVM cannot run a kernel, it does not get there.
 *
 * Memory begins at 1 GiB with the device tree. At 4 MiB behind it page tables (3 pages) and scratch, below them the stack;
 * the 2 MiB behind 6 MiB are what is remapped.
 */
        .set    UART, 0x09000000
        .set    DISTRIBUTOR, 0x08000000
        .set    REDISTRIBUTOR, 0x080a0000
        .set    TABLES, 0x40400000
        .set    SCRATCH, 0x40408000
        .set    REMAPPED, 0x40600000
        .set    DEVICE, 0x0000000000000401      /* a block, accessed, for the kernel only */
        .set    CODE, 0x00000000000007c5        /* normal memory, shared, read-only for all */
        .set    DATA, 0x0060000000000745        /* normal memory, shared, for all, never executed */
        .set    TIMER, 27                       /* the virtual timer's interrupt */

        .text
        .globl  start
start:
        mov     x0, #(3 << 20)                  /* vectors */
        msr     cpacr_el1, x0
        adr     x0, vectors
        msr     vbar_el1, x0
        ldr     x20, =TABLES
        mov     sp, x20
        ldr     x19, =UART
        mov     w0, #0x101                      /* the serial line sends */
        str     w0, [x19, #0x30]

        mov     x0, x20                         /* three empty tables */
        mov     x1, #(3 * 512)
1:      str     xzr, [x0], #8
        subs    x1, x1, #1
        b.ne    1b
        add     x1, x20, #0x1000                /* the first GiB: code, devices */
        orr     x2, x1, #3
        str     x2, [x20]
        ldr     x2, =CODE
        str     x2, [x1]
        ldr     x2, =(DISTRIBUTOR + DEVICE)
        mov     x3, #(8 * (DISTRIBUTOR >> 21))
        mov     x4, #16
1:      str     x2, [x1, x3]
        add     x2, x2, #0x200000
        add     x3, x3, #8
        subs    x4, x4, #1
        b.ne    1b
        add     x21, x20, #0x2000               /* the second: memory */
        orr     x2, x21, #3
        str     x2, [x20, #8]
        ldr     x2, =(0x40000000 + DATA)
        mov     x3, x21
        mov     x4, #8
1:      str     x2, [x3], #8
        add     x2, x2, #0x200000
        subs    x4, x4, #1
        b.ne    1b
        ldr     x0, =0xff00                     /* attributes: devices, normal memory */
        msr     mair_el1, x0
        ldr     x0, =0x0000000200803519         /* 39 bits of addresses, shared, cached tables, no second half */
        msr     tcr_el1, x0
        msr     ttbr0_el1, x20
        dsb     sy
        tlbi    vmalle1
        dsb     sy
        isb
        mrs     x0, sctlr_el1
        ldr     x1, =0x1005                     /* translation and caches */
        orr     x0, x0, x1
        msr     sctlr_el1, x0
        isb

        mov     w15, #1                         /* step 1: vectors and exclusive accesses */
        ldr     x22, =SCRATCH
        movi    v0.16b, #3
        add     v0.2d, v0.2d, v0.2d
        str     q0, [x22]
        ldrb    w0, [x22, #15]
        cmp     w0, #6
        b.ne    fail
1:      ldxp    x0, x1, [x22]
        mov     x2, #7
        stxp    w3, x2, x1, [x22]
        cbnz    w3, 1b
        ldr     x0, [x22]
        cmp     x0, #7
        b.ne    fail

        mov     w15, #2                         /* step 2: an undefined instruction, skipped by its handler */
        mov     x14, #0
        udf     #0
        cmp     x14, #1
        b.ne    fail

        mov     w15, #3                         /* step 3: page tables change under way, 1000 times */
        mov     x13, #1000
        ldr     x23, =REMAPPED
1:      str     xzr, [x21, #24]                 /* the block at 6 MiB goes */
        dsb     ishst
        lsr     x0, x23, #12
        tlbi    vaae1, x0
        dsb     ish
        isb
        str     x13, [x23]                      /* the handler brings it back */
        ldr     x0, [x23]
        cmp     x0, x13
        b.ne    fail
        subs    x13, x13, #1
        b.ne    1b
        mov     x0, #1001
        cmp     x14, x0
        b.ne    fail

        mov     w15, #4                         /* step 4: to user mode and back by a system call, 1000 times */
        mov     x13, #1000
        adr     x0, user
        msr     elr_el1, x0
        mov     x0, #0x3c0
        msr     spsr_el1, x0
        eret
user:
        svc     #0
        b       user
back:
        mov     w15, #5                         /* step 5: 100 interrupts of the timer */
        ldr     x24, =DISTRIBUTOR
        mov     w0, #0x12
        str     w0, [x24]
        ldr     x24, =REDISTRIBUTOR
        str     wzr, [x24, #0x14]               /* awake */
1:      ldr     w0, [x24, #0x14]
        tbnz    w0, #2, 1b
        add     x24, x24, #0x10000
        mov     w0, #-1
        str     w0, [x24, #0x80]
        mov     w0, #(1 << TIMER)
        str     w0, [x24, #0x100]
        mov     x0, #1
        msr     s3_0_c12_c12_5, x0              /* registers, not memory */
        isb
        mov     x0, #0xff
        msr     s3_0_c4_c6_0, x0                /* every priority */
        mov     x0, #1
        msr     s3_0_c12_c12_7, x0
        isb
        mov     x14, #0
1:      mov     x0, #1000
        msr     cntv_tval_el0, x0
        mov     x0, #1
        msr     cntv_ctl_el0, x0
        isb
        wfi
        msr     daifclr, #2
        isb
        msr     daifset, #2
        cmp     x14, #100
        b.lo    1b

        adr     x1, works
        b       say
fail:
        adr     x1, failed
say:
        ldrb    w0, [x1], #1
        cbz     w0, 2f
        str     w0, [x19]
        b       say
2:      cmp     w15, #5
        b.eq    end
        add     w0, w15, #'0'
        str     w0, [x19]
        mov     w0, #'\n'
        str     w0, [x19]
end:
        ldr     w0, =0x84000008                 /* off */
        hvc     #0
        b       end

        .balign 0x800
vectors:
        .org    vectors + 0x200
        mrs     x8, esr_el1
        lsr     x8, x8, #26
        cbz     x8, undefined
        cmp     x8, #0x25
        b.ne    fail
        add     x14, x14, #1
        ldr     x8, =(REMAPPED + DATA)
        str     x8, [x21, #24]
        dsb     ishst
        isb
        eret
undefined:
        add     x14, x14, #1
        mrs     x8, elr_el1
        add     x8, x8, #4
        msr     elr_el1, x8
        eret
        .org    vectors + 0x280
        mrs     x8, s3_0_c12_c12_0              /* taken */
        add     x14, x14, #1
        msr     cntv_ctl_el0, xzr
        isb
        msr     s3_0_c12_c12_1, x8              /* done with it */
        eret
        .org    vectors + 0x400
        subs    x13, x13, #1
        b.eq    1f
        eret
1:      adr     x8, back
        msr     elr_el1, x8
        mov     x8, #0x3c5
        msr     spsr_el1, x8
        eret
        .org    vectors + 0x800

works:  .asciz  "VTKVM ok\n"
failed: .asciz  "VTKVM failed at step "
        .balign 8
        .ltorg
