/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest of 64 KiB that runs instead of a BIOS and does in a millisecond what kernels do: long mode, paging and changes
 * of page tables, exceptions, SSE, 16-byte atomics, user mode and back, interrupts of its own timer. It says "VTKVM ok"
 * on the first serial port and ends with a triple fault. Where KVM emulates instead of running, it does not get there.
 *
 * Memory: 0x1000 page tables (4 pages), 0x8000 IDT, 0x9000 scratch, 0xf000 stack, 2 MiB the page that is remapped.
 */
        .set    COM1, 0x3f8
        .set    APIC, 0xfee00000
        .set    TABLES, 0x1000
        .set    IDT, 0x8000
        .set    SCRATCH, 0x9000
        .set    STACK, 0xf000
        .set    REMAPPED, 0x200000

        .text
        .globl  start
start:
        .code32
protected:
        movl    $0x10, %eax
        movl    %eax, %ds
        movl    %eax, %es
        movl    %eax, %ss
        movl    $STACK, %esp
        movl    $TABLES, %edi                   /* one table of each level: the first GiB, and the one of the APIC */
        xorl    %eax, %eax
        movl    $0x1000, %ecx
        rep     stosl
        movl    $(TABLES + 0x1007), TABLES
        movl    $(TABLES + 0x2007), TABLES + 0x1000
        movl    $(TABLES + 0x3007), TABLES + 0x1018
        movl    $TABLES + 0x2000, %edi
        movl    $0x87, %eax                     /* 2 MiB pages, user, writable */
        movl    $512, %ecx
1:      movl    %eax, (%edi)
        addl    $0x200000, %eax
        addl    $8, %edi
        loop    1b
        movl    $0xfee00083, TABLES + 0x3000 + 8 * 0x1f7
        movl    %cr4, %eax
        orl     $0x620, %eax                    /* PAE, FXSR, SSE exceptions */
        movl    %eax, %cr4
        movl    $TABLES, %eax
        movl    %eax, %cr3
        movl    $0xc0000080, %ecx
        rdmsr
        orl     $0x101, %eax                    /* long mode, system calls */
        wrmsr
        movl    %cr0, %eax
        andl    $0xfffffffb, %eax
        orl     $0x80010003, %eax               /* paging, write protection; SSE on */
        movl    %eax, %cr0
        ljmp    $0x18, $long_mode

        .code64
long_mode:
        movl    $0x10, %eax
        movl    %eax, %ds
        movl    %eax, %es
        movl    %eax, %ss
        movl    $STACK, %esp
        movl    $32 * 16 + 16, %ecx             /* IDT: every vector to its handler */
        xorl    %eax, %eax
        movl    $IDT, %edi
        rep     stosl
        movl    $6, %edi
        leaq    on_undefined(%rip), %rax
        call    gate
        movl    $14, %edi
        leaq    on_page_fault(%rip), %rax
        call    gate
        movl    $32, %edi
        leaq    on_timer(%rip), %rax
        call    gate
        lidt    idt_register(%rip)
        xorl    %eax, %eax
        cpuid

        movl    $1, %r15d                       /* step 1: SSE and 16-byte atomics */
        movdqa  constants(%rip), %xmm0
        paddq   %xmm0, %xmm0
        movdqa  %xmm0, SCRATCH
        xorl    %eax, %eax
        xorl    %edx, %edx
        movl    $SCRATCH + 16, %edi
        movl    $7, %ebx
        xorl    %ecx, %ecx
        lock cmpxchg16b (%rdi)
        jnz     fail
        cmpl    $7, SCRATCH + 16
        jne     fail

        movl    $2, %r15d                       /* step 2: an undefined instruction, skipped by its handler */
        xorl    %r14d, %r14d
        ud2
        cmpl    $1, %r14d
        jne     fail

        movl    $3, %r15d                       /* step 3: page tables change under way, 1000 times */
        movl    $1000, %r13d
1:      movl    $0, TABLES + 0x2000 + 8         /* the page at 2 MiB goes */
        invlpg  REMAPPED
        movl    %r13d, REMAPPED                 /* page fault: the handler brings it back */
        lock cmpxchg16b REMAPPED + 64
        decl    %r13d
        jnz     1b
        cmpl    $1001, %r14d
        jne     fail

        movl    $4, %r15d                       /* step 4: to user mode and back by a system call, 1000 times */
        movl    $0xc0000081, %ecx
        xorl    %eax, %eax
        movl    $0x00200018, %edx               /* STAR: kernel 0x18, user 0x20 + 16 */
        wrmsr
        movl    $0xc0000082, %ecx
        leaq    on_call(%rip), %rax
        xorl    %edx, %edx
        wrmsr
        movl    $0xc0000084, %ecx
        xorl    %eax, %eax
        wrmsr
        movl    $1000, %r13d
        leaq    user(%rip), %rcx
        movl    $2, %r11d
        sysretq
user:
        syscall
on_call:
        decl    %r13d
        jz      1f
        movl    $2, %r11d
        leaq    user(%rip), %rcx
        sysretq
1:
        movl    $0x10, %eax
        movl    %eax, %ss
        movl    $STACK, %esp
        movl    $5, %r15d                       /* step 5: 100 interrupts of the local timer */
        movl    $0x1b, %ecx
        rdmsr
        orl     $0x800, %eax
        wrmsr
        movl    $APIC, %ebx
        movl    $0x1ff, 0xf0(%rbx)              /* switched on */
        movl    $0x20, 0x320(%rbx)              /* one shot, vector 32 */
        movl    $0xb, 0x3e0(%rbx)
        xorl    %r14d, %r14d
1:      movl    $1000, 0x380(%rbx)
        sti
        hlt
        cli
        cmpl    $100, %r14d
        jb      1b

        leaq    works(%rip), %rsi
        jmp     say
fail:
        leaq    failed(%rip), %rsi
        addb    $'0', %r15b
        movb    %r15b, SCRATCH
say:
        movl    $COM1, %edx
1:      lodsb
        testb   %al, %al
        jz      2f
        outb    %al, %dx
        jmp     1b
2:      cmpl    $5, %r15d
        je      end
        movb    SCRATCH, %al
        outb    %al, %dx
        movb    $'\n', %al
        outb    %al, %dx
end:
        lidt    nothing(%rip)
        int3

gate:                                           /* vector %edi goes to %rax */
        shll    $4, %edi
        addl    $IDT, %edi
        movl    %eax, %edx
        andl    $0xffff, %edx
        orl     $0x180000, %edx
        movl    %edx, (%rdi)
        andl    $0xffff0000, %eax
        orl     $0x8e00, %eax
        movl    %eax, 4(%rdi)
        ret

on_undefined:
        incl    %r14d
        addq    $2, (%rsp)
        iretq

on_page_fault:
        incl    %r14d
        addq    $8, %rsp
        movl    $0x200087, TABLES + 0x2000 + 8
        iretq

on_timer:
        incl    %r14d
        movl    $0, 0xb0(%rbx)                  /* done with it */
        iretq

        .balign 16
constants:
        .quad   1, 2
works:  .asciz  "VTKVM ok\n"
failed: .asciz  "VTKVM failed at step "
        .balign 8
idt_register:
        .word   33 * 16 - 1
        .quad   IDT
nothing:
        .word   0
        .quad   0
        .balign 8
gdt:                                            /* order as sysret wants it: 0x18 kernel, 0x28 user data, 0x30 user */
        .quad   0
        .quad   0x00cf9a000000ffff              /* 0x08 32-bit code */
        .quad   0x00cf92000000ffff              /* 0x10 data */
        .quad   0x00af9a000000ffff              /* 0x18 64-bit code */
        .quad   0x00cf92000000ffff              /* 0x20 data */
        .quad   0x00cff2000000ffff              /* 0x28 user data */
        .quad   0x00affa000000ffff              /* 0x30 user 64-bit code */
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
reset:
        jmp     real_mode
        .org    0xffff
        .byte   0
