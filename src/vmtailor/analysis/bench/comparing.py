# SPDX-License-Identifier: Apache-2.0
"""Two runs, of two hosts or of one at two times, cell by cell."""

from __future__ import annotations

from dataclasses import dataclass

from vmtailor.analysis.bench.cells import Against, Cell, CellKey, cells_of, set_against
from vmtailor.base.errors import UserInputError
from vmtailor.model.bench.results import BenchResults, HostRun


@dataclass(frozen=True)
class Compared:
    """One cell on both sides; None where a side has it not. `change` is None where it cannot be told."""

    key: CellKey
    before: Cell | None
    after: Cell | None
    change: Against | None


def sides(before: BenchResults, after: BenchResults) -> tuple[HostRun, HostRun]:
    """The run of each file that is compared: its last. Raises UserInputError for what cannot be compared: another form,
    or another image."""
    if not before.runs or not after.runs:
        raise UserInputError("a file holds no run", hint="vmtailor bench SUITE --on … makes one")
    left, right = before.runs[-1], after.runs[-1]
    if left.quick != right.quick:
        raise UserInputError("one side is of the quick form, whose tests are shorter", hint="measure both alike")
    if left.image_digest != right.image_digest:
        raise UserInputError("the sides are of different images", hint="use one image: --image")
    return left, right


def compared(before: HostRun, after: HostRun) -> list[Compared]:
    """Every cell that a side has."""
    left = {cell.key: cell for cell in cells_of(before)}
    right = {cell.key: cell for cell in cells_of(after)}
    found = []
    for key in dict.fromkeys((*left, *right)):
        one, two = left.get(key), right.get(key)
        change = None
        if one is not None and two is not None:
            change = set_against(key, one.values, two.values, larger_is_better=one.larger_is_better)
        found.append(Compared(key, one, two, change))
    return found
