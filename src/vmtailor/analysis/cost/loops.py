# SPDX-License-Identifier: Apache-2.0
"""The loops that only emulation causes, by architecture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vmtailor.model.architecture import named


@dataclass(frozen=True)
class LoopNames:
    """One row of the table: functions that wait in a loop because the machine is emulated."""

    name: str
    functions: tuple[str, ...]
    reason: str


def table(architecture: str) -> tuple[LoopNames, ...]:
    """Return the loops of an architecture, as its file has them."""
    return tuple(LoopNames(row.name, row.functions, row.reason) for row in named(architecture).loop)


def functions(loops: Sequence[LoopNames]) -> frozenset[str]:
    """Return the names of their functions."""
    return frozenset(function for loop in loops for function in loop.functions)


def plain(function: str) -> str:
    """Return a function's own name, given the name of a part or a clone that the compiler made of it."""
    return function.partition(".")[0]
