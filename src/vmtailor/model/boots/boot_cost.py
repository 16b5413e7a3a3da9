# SPDX-License-Identifier: Apache-2.0
"""The costs of a boot: instructions by function, initcall and symbol, and the machine's memory by part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class CostOfFunction:
    """Instructions in the function itself. `symbol` is empty for code that is always built."""

    function: str
    file: str
    symbol: str
    instructions: int


@dataclass(frozen=True)
class CostOfInitcall:
    """One initcall with all that it called. `at`: instructions since kernel entry when it began."""

    name: str
    file: str
    symbol: str
    at: int
    instructions: int
    device_accesses: int


@dataclass(frozen=True)
class CostOfSymbol:
    """All code that is there because of one configuration symbol; `functions` names those that cost most."""

    symbol: str
    instructions: int
    functions: tuple[str, ...]


@dataclass(frozen=True)
class Helpers:
    """Programs that the kernel started (modprobe): how many, and how many of them for self-tests of the crypto manager.
    `each`: the instructions of one from its request to its end, user space and kernel."""

    count: int = 0
    for_tests: int = 0
    each: int = 0


@dataclass(frozen=True)
class BootCost:
    """The cost of a boot, in instructions. `total` is the sum of `functions`, `early`, `user` and `unknown`. `early` is
    the way before the kernel runs where it is linked, and firmware that it calls. `user` is of helpers that the kernel
    started; `unknown` has no debug information. `initcalls` and `helpers` are a second view of the same instructions,
    inclusive. `whole_functions`: each function counts as a whole, with all that was inlined into it, and its symbol is
    that of its begin. `machine`: tells the one that was booted from others."""

    SCHEMA: ClassVar[str] = "vmtailor/boot-cost/1"

    release: str
    total: int
    before_kernel: int  # firmware and decompression, not in total
    early: int
    user: int
    unknown: int
    functions: tuple[CostOfFunction, ...]
    symbols: tuple[CostOfSymbol, ...]
    initcalls: tuple[CostOfInitcall, ...]
    helpers: Helpers = Helpers()
    whole_functions: bool = False
    machine: str = ""


@dataclass(frozen=True)
class MemoryPart:
    """One part, in bytes; `what` says what it is."""

    name: str
    bytes: int
    what: str


@dataclass(frozen=True)
class MemoryUse:
    """A machine's memory, after its load: the parts add up to `machine_bytes`."""

    machine_bytes: int
    parts: tuple[MemoryPart, ...]
