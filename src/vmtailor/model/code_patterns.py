# SPDX-License-Identifier: Apache-2.0
"""The look of a processor family's machine code: reach reads programs by it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Pattern:
    """The look of one kind of instruction: the 8 bytes from its first on, read as a little-endian number, are `value`
    under `mask`. Its operand are the `bits` bits from bit `low` on, signed, times 2^`shift`. It names the operand plus
    `base`, counted from the instruction's own address unless it is `absolute`."""

    value: int
    mask: int
    low: int
    bits: int
    base: int = 0
    shift: int = 0
    absolute: bool = False


@dataclass(frozen=True)
class PatternPart:
    """Bits of an operand that stand apart: `bits` bits from bit `low` of the instruction on are bits `at` and up."""

    low: int
    bits: int
    at: int = 0


@dataclass(frozen=True)
class Half:
    """One of two instructions that name an address together: its 4 bytes are `value` under `mask`; `parts` are its
    operand, signed where `signed`. The register that joins both stands in the 5 bits from `register` on."""

    value: int
    mask: int
    parts: tuple[PatternPart, ...]
    register: int
    signed: bool = False


@dataclass(frozen=True)
class PatternPair:
    """Two instructions that name an address together: `first` puts what is near into a register, counted from its own
    address, less the bits under `page`; `second` adds the rest, at most `within` bytes later."""

    first: Half
    second: Half
    page: int = 0
    within: int = 32


@dataclass(frozen=True)
class MachineCode:
    """The machine code by which programs ask the kernel. `elf_machine`: the number in ELF headers; `capstone`: the
    library's names for processor and mode, without CS_ARCH_ and CS_MODE_; `unit`: instructions lie at multiples of it.

    `system_call`: the instruction's bytes, in hex, and `system_call_word` as it is written. `number`: the register that
    says which call it is; `result`: the one that its answer is in, where it is not `number`; `stack`: the one that
    points to the stack; `arguments`: those of C functions; `kept`: those that functions keep; `registers`: the narrower
    names of each that has some.

    `moves`, `clears` (of a register and itself), `pushes`, `pops`, `calls`, `reads` (they write no register), `leaves`:
    the words of such instructions; `both`: of those that write two registers. `writes_base`: an operand in memory may
    change the register that it is counted from. `direct_calls`, `jumps`: patterns of what goes to an address of code;
    `references`: of what takes an address; `slots`: of what uses a pointer at an address; `paired_references` and
    `paired_slots`: the same where it takes two instructions."""

    elf_machine: int
    capstone: tuple[str, str]
    system_call: str
    system_call_word: str
    number: str
    stack: str
    arguments: tuple[str, ...]
    kept: tuple[str, ...]
    registers: dict[str, tuple[str, ...]]
    moves: tuple[str, ...]
    clears: tuple[str, ...]
    pushes: tuple[str, ...]
    pops: tuple[str, ...]
    calls: tuple[str, ...]
    reads: tuple[str, ...]
    leaves: tuple[str, ...]
    direct_calls: tuple[Pattern, ...]
    jumps: tuple[Pattern, ...]
    references: tuple[Pattern, ...]
    slots: tuple[Pattern, ...]
    unit: int = 1
    paired_references: tuple[PatternPair, ...] = ()
    paired_slots: tuple[PatternPair, ...] = ()
    result: str = ""
    both: tuple[str, ...] = ()
    writes_base: bool = False
