# SPDX-License-Identifier: Apache-2.0
"""Functions of one kernel found in another that has the same ones at other addresses: what debug information of the
second says of the first. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

import numpy as np

from vmtailor.analysis.cost.plugin_counts import SymbolTable
from vmtailor.model.boots.counters import SourceFrames

#: (name, address) of a function.
Named = tuple[str, int]
_FUNCTION = re.compile(r"^([0-9a-fA-F]{8,16}) [tTwW] (\S+)$", re.MULTILINE)


def functions(system_map: str) -> tuple[Named, ...]:
    """Return all functions that a System.map names."""
    return tuple((name, int(at, 16)) for at, name in _FUNCTION.findall(system_map))


def counterparts(mine: Iterable[Named], theirs: Iterable[Named]) -> tuple[dict[int, int], tuple[str, ...]]:
    """Return the begins in `theirs` of the functions at the addresses of `mine`, and the names that are not as often in
    both. Local functions of one name are told apart by their order: both kernels are linked from the same files in
    turn."""
    there = _by_name(theirs)
    found: dict[int, int] = {}
    lacking = []
    for name, addresses in _by_name(mine).items():
        others = there.get(name, [])
        if len(others) == len(addresses):
            found.update(zip(addresses, others, strict=True))
        else:
            lacking.append(name)
    return found, tuple(lacking)


def _by_name(functions: Iterable[Named]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for name, at in functions:
        found[name].append(at)
    return {name: sorted(addresses) for name, addresses in found.items()}


def begins(table: SymbolTable, counterpart: Mapping[int, int], addresses: Iterable[int]) -> dict[int, int]:
    """Return address → where the function that it lies in begins in the other kernel; what lies in none is left out."""
    asked = list(addresses)
    index = table.index_of(np.array(asked, np.uint64))
    starts = (int(table.starts[place]) if place >= 0 else -1 for place in index.tolist())
    return {address: counterpart[start] for address, start in zip(asked, starts, strict=True) if start in counterpart}


def whole_functions(at: Mapping[int, int], frames: Mapping[int, SourceFrames]) -> dict[int, SourceFrames]:
    """Return address → the one frame of its function as it begins: what was inlined counts as the function's own. `at`:
    address → begin; `frames`: begin → frames."""
    return {address: frames[begin][-1:] for address, begin in at.items() if frames.get(begin)}
