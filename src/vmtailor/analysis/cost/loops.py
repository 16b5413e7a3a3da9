# SPDX-License-Identifier: Apache-2.0
"""The loops that only emulation causes: data/emulation_loops.toml."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True)
class LoopNames:
    """One row of the table: functions that wait in a loop because the machine is emulated."""

    name: str
    functions: tuple[str, ...]
    reason: str


@functools.cache
def table() -> tuple[LoopNames, ...]:
    """All of them."""
    text = (resources.files("vmtailor") / "data" / "emulation_loops.toml").read_text()
    rows = tomllib.loads(text)["loop"]
    return tuple(LoopNames(row["name"], tuple(row["functions"]), row["reason"]) for row in rows)


def functions(loops: Sequence[LoopNames]) -> frozenset[str]:
    """Names of their functions."""
    return frozenset(function for loop in loops for function in loop.functions)


def plain(function: str) -> str:
    """A function's own name, of a part or a clone that the compiler made of it."""
    return function.partition(".")[0]
