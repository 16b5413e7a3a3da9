# SPDX-License-Identifier: Apache-2.0
"""Figures that are parts of another one: instructions of the kernel, by the subsystem whose source they come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vmtailor.bench.analysis.cells import Cell

#: The separator between a figure's name and that of its part.
OF = ": "
#: Subsystems with less than this share of the whole, in every runtime, are shown together.
LEAST_SHARE = 0.005
SMALLER = "smaller ones together"


@dataclass(frozen=True)
class Parts:
    """One figure by its parts. `rows`: part → its value in each runtime, in the figure's unit; 0 where a runtime has
    nothing of it. The first row is the whole."""

    figure: str
    unit: str
    runtimes: tuple[str, ...]
    rows: tuple[tuple[str, tuple[float, ...]], ...]


def part(figure: str, name: str) -> str:
    """Return the name of the figure of a part."""
    return f"{figure}{OF}{name}"


def is_part(cell: Cell) -> bool:
    """Return whether a cell is a part of another one of its test."""
    return OF in cell.key.figure


def parts_of(cells: Sequence[Cell]) -> list[Parts]:
    """Return the figures of one test that have parts, each with its parts, the largest first."""
    wholes = {
        (c.key.figure, c.key.runtime): (c.summary.median, c.unit)
        for c in cells
        if not is_part(c) and c.summary is not None
    }
    known: dict[str, dict[str, dict[str, float]]] = {}
    for cell in cells:
        if is_part(cell) and cell.summary is not None:
            figure, _, name = cell.key.figure.partition(OF)
            known.setdefault(figure, {}).setdefault(name, {})[cell.key.runtime] = cell.summary.median
    found = []
    for figure, by_part in known.items():
        met = {name for values in by_part.values() for name in values}
        runtimes = tuple(runtime for name, runtime in wholes if name == figure and runtime in met)
        whole = tuple(wholes[figure, name][0] for name in runtimes)
        rows, small = [], [0.0] * len(runtimes)
        for name, by_runtime in by_part.items():
            values = tuple(by_runtime.get(runtime, 0.0) for runtime in runtimes)
            if all(abs(value) < LEAST_SHARE * abs(all_) for value, all_ in zip(values, whole, strict=True)):
                small = [a + b for a, b in zip(small, values, strict=True)]
            else:
                rows.append((name, values))
        rows.sort(key=lambda row: (-max(row[1], default=0.0), row[0]))
        if any(small):
            rows.append((SMALLER, tuple(small)))
        if runtimes:
            found.append(Parts(figure, wholes[figure, runtimes[0]][1], runtimes, (("all", whole), *rows)))
    return found
