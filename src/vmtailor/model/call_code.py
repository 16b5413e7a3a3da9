# SPDX-License-Identifier: Apache-2.0
"""The look of calls in a processor family's kernel: which instructions call and return, and which functions of the
kernel are entered or left in ways of their own."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntFlag, StrEnum


class CallKind(StrEnum):
    """The instructions that change the stack of calls."""

    CALL = "call"
    RETURN = "return"
    INTERRUPT_RETURN = "interrupt-return"


class FunctionFlags(IntFlag):
    """The ways of a function that the plugin must know (native/call-plugin/functions.h)."""

    NONE = 0
    CALL = 1
    THUNK = 2
    INTERRUPT = 4
    EXCEPTION = 8
    SOFT = 16
    THREAD = 32
    STUBS = 64


@dataclass(frozen=True)
class CallOpcode:
    """One kind of instruction: its byte behind the prefixes is `value` under `mask`, the next one `next` under
    `next_mask` (0: any)."""

    kind: CallKind
    value: int
    mask: int = 0xFF
    next: int = 0
    next_mask: int = 0


@dataclass(frozen=True)
class CallCode:
    """The facts by which a kernel's calls are followed. `stack_bytes`: size and alignment of a kernel stack.

    The others name functions; a `*` at the end stands for any rest. `calls`: do the work of a system call, and have its
    name behind what is given here; `names`: those that programs know by another name. `thunks`: go on to where their
    caller wanted to go. `interrupts` and `exceptions`: the processor enters them; those that are `stubs`, too, at many
    places. `threads`: a new thread begins there. `patched`: calls to them are replaced while the kernel
    starts, or are the compiler's own, so that they tell no branch of the code."""

    stack_bytes: int
    opcodes: tuple[CallOpcode, ...]
    calls: tuple[str, ...]
    thunks: tuple[str, ...] = ()
    interrupts: tuple[str, ...] = ()
    exceptions: tuple[str, ...] = ()
    stubs: tuple[str, ...] = ()
    threads: tuple[str, ...] = ()
    patched: tuple[str, ...] = ()
    names: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class FollowedFunction:
    """A function of the kernel, to be followed. `object`: the number of what calls are made on that it is a method of,
    or -1."""

    address: int
    flags: FunctionFlags = FunctionFlags.NONE
    object: int = -1


@dataclass(frozen=True)
class FollowedCode:
    """All functions of a kernel, in ascending order of their addresses; the last one ends the table. `most_nodes`: of
    the tree of calls. `image_map`: virtual minus physical address of the kernel's image."""

    functions: tuple[FollowedFunction, ...]
    most_nodes: int
    image_map: int = 0
