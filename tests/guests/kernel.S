/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A kernel of some hundred bytes that QEMU starts by its PVH note. The first letter of the command line says what it does:
 * `x` says so and ends by a triple fault, `p` panics in words and ends, `h` says so and hangs, `e` echoes the serial line
 * until a dot comes, `l` prints 100,000 letters and ends.
 */
        .set    COM1, 0x3f8

        .section .note.pvh, "a", @note
        .long   4, 4, 18                        /* XEN_ELFNOTE_PHYS32_ENTRY */
        .asciz  "Xen"
        .long   start

        .text
        .code32
        .globl  start
start:
        movl    24(%ebx), %esi                  /* hvm_start_info: the command line */
        movl    $COM1, %edx
        cmpb    $'p', (%esi)
        je      panics
        cmpb    $'h', (%esi)
        je      hangs
        cmpb    $'e', (%esi)
        je      echoes
        cmpb    $'l', (%esi)
        je      prints
        movl    $ends_text, %esi
        call    say
end:
        lidt    nothing
        int3
panics:
        movl    $panic_text, %esi
        call    say
        jmp     end
hangs:
        movl    $hangs_text, %esi
        call    say
1:      jmp     1b
prints:
        movl    $100000, %ecx
1:      movb    $'l', %al
        outb    %al, %dx
        loop    1b
        jmp     end
echoes:
        movl    $COM1 + 5, %edx
1:      inb     %dx, %al
        testb   $1, %al
        jz      1b
        movl    $COM1, %edx
        inb     %dx, %al
        outb    %al, %dx
        cmpb    $'.', %al
        jne     echoes
        jmp     end
say:
        lodsb
        testb   %al, %al
        jz      1f
        outb    %al, %dx
        jmp     say
1:      ret

nothing:
        .word   0
        .long   0
ends_text:
        .asciz  "the end\n"
panic_text:
        .asciz  "[    0.012345] Kernel panic - not syncing: as told\n"
hangs_text:
        .asciz  "hanging\n"
