# SPDX-License-Identifier: Apache-2.0
"""Counts of blocks as a profile that llvm-profgen reads (it calls such a text an unsymbolized profile). Pure.

The text has two parts, each with its number of lines first. Addresses are hexadecimal:

    START-LAST:COUNT    instructions from START to LAST, which both belong to it, ran so often
    FROM->TO:COUNT      TO was reached so often from FROM by a call or jump

Blocks are ranges. Entries of functions are calls from NOWHERE, since the plugin does not note who called."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vmtailor.analysis.cost.plugin_counts import SymbolTable, phased
from vmtailor.model.boots.boot import Phase
from vmtailor.model.boots.counters import Counters

#: The caller of every function: an address where none is.
NOWHERE = 1
#: The symbols between which the kernel's code lies.
_BEGIN, _END = "_stext", "_etext"


def of_load(counters: Counters, table: SymbolTable) -> str:
    """Return the profile of the kernel's code in the load of a boot; empty where there was no load, or none of its code
    is in the table."""
    blocks = counters.blocks
    entries = np.zeros(len(blocks), np.uint64)
    for phase, stretch in phased(counters):
        if phase is Phase.LOAD:
            np.add.at(entries, stretch.block, stretch.entries)
    begin, end = (np.uint64(table.addresses.get(name, 0)) for name in (_BEGIN, _END))
    inside = (blocks.vaddr >= begin) & (blocks.vaddr < end) & ~blocks.early
    found = np.flatnonzero((entries > 0) & (blocks.insns > 0) & inside)
    first, count = blocks.vaddr[found], entries[found]
    last_length = blocks.lengths[blocks.lengths_at[found].astype(np.int64) + blocks.insns[found] - 1]
    last = first + blocks.size[found] - last_length
    if not len(found):
        return ""
    ranges = [f"{a:x}-{b:x}:{n}" for a, b, n in _added(first, last, count)]
    is_entry = np.isin(first, table.starts[:-1])
    calls = [f"{NOWHERE:x}->{a:x}:{n}" for a, _, n in _added(first[is_entry], first[is_entry], count[is_entry])]
    return "\n".join([str(len(ranges)), *ranges, str(len(calls)), *calls, ""])


def _added(
    first: NDArray[np.uint64], last: NDArray[np.uint64], count: NDArray[np.uint64]
) -> list[tuple[int, int, int]]:
    """Return rows with their counts, those of equal addresses added up, sorted."""
    found: dict[tuple[int, int], int] = {}
    for a, b, n in zip(first.tolist(), last.tolist(), count.tolist(), strict=True):
        found[a, b] = found.get((a, b), 0) + n
    return [(a, b, n) for (a, b), n in sorted(found.items())]
