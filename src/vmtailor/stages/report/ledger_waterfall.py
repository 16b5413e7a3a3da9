# SPDX-License-Identifier: Apache-2.0
"""The ledger as a waterfall: from the baseline's instructions to init to the tailored machine's, folder by folder.

Each folder has three figures: the measured one, the one expected of the symbols left out there, and the rest, which no
symbol accounts for. All columns add up; `parts` explain the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from vmtailor.base import figures
from vmtailor.base.text import plural
from vmtailor.model.change import Change, Figure
from vmtailor.model.fit_run import FitRun, Part

#: Folders of a list; what follows is summed up in a last row. Symbols that are named of one folder.
MOST_FOLDERS, MOST_SYMBOLS = 14, 12
FIGURE = Figure.INIT_INSTRUCTIONS_NET
#: Meaning of the remainder, for a person.
REMAINDER = (
    "The remainder is what no symbol left out accounts for: code that both kernels have, and that has less to do in "
    "the tailored one (what is gone calls it no more, no initial RAM disk is unpacked, less memory is set up), and "
    "what the compiler made of the same source with other options. Loops that only emulation causes are in none of "
    "these figures."
)


@dataclass(frozen=True)
class Folder:
    """One folder of the source tree, or several. Instructions, less is negative. `symbols` are those left out there,
    with what is expected of each, the largest first."""

    name: str
    does: str
    measured: int
    expected: int
    symbols: tuple[tuple[str, int], ...]
    verdict: str

    @property
    def remainder(self) -> int:
        return self.measured - self.expected


@dataclass(frozen=True)
class Waterfall:
    """`start` and `end` are the instructions of both sides, and rows add up to the difference. `before_kernel`: what
    the tailored machine does more (less, if negative) before its kernel is entered, which is in no row."""

    start: int
    end: int
    rows: tuple[Folder, ...]
    parts: tuple[Part, ...]
    before_kernel: int | None

    @property
    def measured(self) -> int:
        return sum(row.measured for row in self.rows)

    @property
    def expected(self) -> int:
        return sum(row.expected for row in self.rows)

    @property
    def remainder(self) -> int:
        return self.measured - self.expected


def of(run: FitRun) -> Waterfall | None:
    """Return the waterfall of a fit; None where nothing was measured."""
    start, end = run.baseline.init_instructions_net, run.tailored.init_instructions_net
    rows = tuple(_row(change) for change in run.ledger if change.measures(FIGURE) is not None)
    if start is None or end is None or not rows:
        return None
    before = next((e.value for change in run.ledger if (e := change.measures(Figure.BEFORE_KERNEL))), None)
    return Waterfall(
        start=start, end=end, rows=rows, parts=run.remainder, before_kernel=None if before is None else round(before)
    )


def _row(change: Change) -> Folder:
    measured = change.measures(FIGURE)
    symbols = tuple((effect.source, round(effect.value)) for effect in change.expected if effect.figure is FIGURE)
    value = round(measured.value) if measured is not None else 0
    return Folder(
        name=change.id,
        does=change.does,
        measured=value,
        expected=sum(cost for _, cost in symbols),
        symbols=symbols,
        verdict=change.verdict,
    )


def shortened(rows: Sequence[Folder], most: int = MOST_FOLDERS) -> tuple[Folder, ...]:
    """Return the rows that matter most by measured or expected instructions, in their order, and the others as one."""
    if len(rows) <= most + 1:
        return tuple(rows)
    large = sorted(rows, key=lambda row: -max(abs(row.measured), abs(row.expected)))[:most]
    names = {row.name for row in large}
    rest = [row for row in rows if row.name not in names]
    symbols: dict[str, int] = {}
    for name, cost in (pair for row in rest for pair in row.symbols):
        symbols[name] = symbols.get(name, 0) + cost
    others = Folder(
        name=plural(len(rest), "other folder"),
        does="",
        measured=sum(row.measured for row in rest),
        expected=sum(row.expected for row in rest),
        symbols=tuple(sorted(symbols.items(), key=lambda item: (item[1], item[0]))),
        verdict="",
    )
    return (*(row for row in rows if row.name in names), others)


def named(row: Folder, most: int = MOST_SYMBOLS) -> tuple[tuple[tuple[str, int], ...], int]:
    """Return the symbols of a row to name, and the number of the others."""
    return row.symbols[:most], max(0, len(row.symbols) - most)


@dataclass(frozen=True)
class WaterfallBar:
    """One line of the page. `x` and `width` in percent; `kind` is total, less, more or none."""

    row: Folder
    x: float
    width: float
    kind: str


def bars(found: Waterfall) -> tuple[WaterfallBar, ...]:
    """Return the lines from the one machine to the other, each beginning where the one before it ended."""
    level, rows = found.start, shortened(found.rows)
    levels = [level]
    for row in rows:
        level += row.measured
        levels.append(level)
    scale = max(*levels, found.end, 1)
    blank = Folder(name="baseline", does="", measured=found.start, expected=0, symbols=(), verdict="")
    lines = [WaterfallBar(blank, 0.0, 100 * found.start / scale, "total")]
    for row, before, after in zip(rows, levels, levels[1:], strict=False):
        kind = "less" if after < before else "more" if after > before else "none"
        lines.append(
            WaterfallBar(row, 100 * max(0, min(before, after)) / scale, 100 * abs(after - before) / scale, kind)
        )
    return (
        *lines,
        WaterfallBar(replace(blank, name="tailored", measured=found.end), 0.0, 100 * found.end / scale, "total"),
    )


def signed(value: float | None) -> str:
    """Return instructions with their sign."""
    return figures.signed(value, figures.millions)


def document(run: FitRun) -> dict[str, Any] | None:
    """Return the waterfall for `fit --json`."""
    found = of(run)
    if found is None:
        return None
    return {
        "figure": str(FIGURE),
        "measured": found.measured,
        "expected": found.expected,
        "remainder": found.remainder,
        "subsystems": [
            {
                "name": row.name,
                "measured": row.measured,
                "expected": row.expected,
                "remainder": row.remainder,
                "symbols": dict(row.symbols),
            }
            for row in found.rows
        ],
        "parts": [
            {"name": part.name, "before": part.before, "after": part.after, "functions": dict(part.functions)}
            for part in found.parts
        ],
        "before_kernel": found.before_kernel,
    }
