# SPDX-License-Identifier: Apache-2.0
"""The calls of a kernel in one boot, followed to the instruction. Figures are instructions unless another unit is
named."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: The first nodes of a tree of calls; they are no functions.
ROOT, INTERRUPTS, THREADS, OTHERS = range(4)
ROOT_NODES = 4


class WorkKind(IntEnum):
    """The kinds of work that a kernel does: a thread's own (or the first code's), a system call's, an interrupt's, an
    exception's of a program."""

    SYSTEM = 0
    CALL = 1
    INTERRUPT = 2
    EXCEPTION = 3


@dataclass(frozen=True)
class CallPurpose:
    """The purpose of work: `function` names the call, or began the rest; both it and `object` are numbers (-1: no
    object). `owner`: whose program ran."""

    kind: WorkKind
    owner: str
    object: int
    function: int


@dataclass(frozen=True)
class KernelWork:
    """Instructions that were executed in a stretch for one purpose. `soft`: deferred work of interrupts that ran within
    it, which `own` is without."""

    purpose: CallPurpose
    own: int
    soft: int


@dataclass(frozen=True)
class CallCase:
    """The calls of one purpose that ended in a stretch and executed the same: `own` and `soft` instructions each,
    `count` of them. `all_own`, `all_soft`: their sums."""

    purpose: CallPurpose
    own: int
    soft: int
    count: int
    all_own: int
    all_soft: int


@dataclass(frozen=True, eq=False)
class CallStretch:
    """The code that was executed between two marks: `early` outside of the tree, `kernel` in it, `users` by programs
    (owner → instructions). `node`, `purpose`, `self`, `entered` are parallel: a node of the tree that ran, what it
    ran for (an index of `works`), its own instructions, and how often it was entered."""

    begin: str
    end: str
    early: int
    kernel: int
    users: dict[str, int]
    node: NDArray[np.uint32]
    purpose: NDArray[np.uint32]
    self: NDArray[np.uint64]
    entered: NDArray[np.uint64]
    works: tuple[KernelWork, ...]
    cases: tuple[CallCase, ...]


@dataclass(frozen=True, eq=False)
class CallGraph:
    """All calls of a boot. The tree: `parent` and `function` of each node; a function's number is that of the kernel's
    table, and one past its last stands for code of no function. `complete`: False when QEMU died before the end.
    `cut`: entries of functions for whose paths there was no room, so that they are below OTHERS. `rounded`: so many
    different cases that their instructions are rounded."""

    parent: NDArray[np.uint32]
    function: NDArray[np.uint32]
    owners: tuple[str, ...]
    stretches: tuple[CallStretch, ...]
    complete: bool
    cut: int = 0
    rounded: bool = False
