# SPDX-License-Identifier: Apache-2.0
"""Data_N beside the published work: tests down, numbers of containers across, 0 being the machine itself. Data_N is the
mean over repetitions of the mean over instances. The last table compares published shapes, and leaves out those that
one emulated processor cannot show. Pure."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from vmtailor.base.text import plural
from vmtailor.bench.analysis.benchmarks import INDEX, SCORE
from vmtailor.bench.analysis.cells import NATIVE, Cell
from vmtailor.bench.analysis.guest_rounds import CPU_SCORE
from vmtailor.bench.analysis.phrases import digits
from vmtailor.bench.analysis.published_blocks import NAMES, Block, against_host, left
from vmtailor.bench.model.results import VIRTUAL

#: The published block of the machine's kind: it has one processor.
BLOCK = Block.ONE_CPU
#: Titles of the sheet's second and third table, and the columns of the third.
INSTRUCTIONS = "Instructions for a unit of work, kernel + programs, of the whole machine"
SHAPES, SHAPES_HEAD = "Published shapes", ("shape", "published", "here")
WHETSTONE, DHRYSTONE = "whetstone-double", "dhry2reg"
#: Names of the sheet's rows that are no tests.
OVERALL = "overall"
_BY_PROCESSOR_TIME = "whetstone-double, by its processor time"


@dataclass(frozen=True)
class DataN:
    """One engine's sheet. `counts`: numbers of containers, ascending; 0 is the machine itself, where it was measured.
    `scores`: row → unit, and Data_N by count; the row `overall` has the index, where all twelve tests have values.
    `instructions`: test → by count, instructions for a unit of its work: kernel, programs.

    `spread`: the largest relative difference, (largest − smallest) / mean, between repetitions of a score; None where
    none was repeated. `instances`: the same between instances of one round; None where there was only one.
    `repetitions`: the fewest and the most of a cell."""

    engine: str
    counts: tuple[int, ...]
    scores: tuple[tuple[str, str, tuple[tuple[int, float], ...]], ...]
    instructions: tuple[tuple[str, tuple[tuple[int, float, float], ...]], ...]
    spread: float | None
    instances: float | None
    repetitions: tuple[int, int]


def sheets(found: Iterable[Cell]) -> list[DataN]:
    """Return a sheet for each engine that ran in virtual time; where only the machine itself was measured, its
    sheet."""
    mine = [cell for cell in found if cell.key.variant == VIRTUAL and cell.values]
    rows: dict[str, list[Cell]] = defaultdict(list)
    for cell in mine:
        rows[cell.key.runtime].append(cell)
    engines = [name for name in rows if not _is_machine(name)] or list(rows)
    return [_sheet(name, rows[name], rows.get(f"{name.rpartition('/')[0]}/{NATIVE}", [])) for name in engines]


def _is_machine(runtime: str) -> bool:
    return runtime.rpartition("/")[2] == NATIVE


def _sheet(name: str, cells: Sequence[Cell], machine: Sequence[Cell]) -> DataN:
    by: dict[tuple[str, str], dict[int, Cell]] = defaultdict(dict)
    for cell in () if _is_machine(name) else machine:
        if cell.key.count == 1:
            by[cell.key.test, cell.key.figure][0] = cell
    for cell in cells:
        by[cell.key.test, cell.key.figure][cell.key.count] = cell
    tests = [test for test in INDEX if (test, SCORE) in by]
    scores = [(test, INDEX[test].unit, _row(by[test, SCORE])) for test in tests]
    if (WHETSTONE, CPU_SCORE) in by:
        row = (_BY_PROCESSOR_TIME, INDEX[WHETSTONE].unit, _row(by[WHETSTONE, CPU_SCORE]))
        scores.insert(1 + tests.index(WHETSTONE), row)
    scores.append((OVERALL, "index", _overall({test: by[test, SCORE] for test in tests})))
    used = [cell for (_, figure), row in by.items() if figure == SCORE for cell in row.values()]
    repeated = [_spread(cell.values) for cell in used if len(cell.values) > 1]
    within = [
        cell.spread_over_instances / statistics.fmean(cell.values)
        for cell in used
        if cell.spread_over_instances is not None and statistics.fmean(cell.values) > 0
    ]
    return DataN(
        engine=name,
        counts=tuple(sorted({cell.key.count if cell.key.runtime == name else 0 for cell in used})),
        scores=tuple(scores),
        instructions=tuple((test, _instructions(by, test)) for test in tests),
        spread=max(repeated, default=None),
        instances=max(within, default=None),
        repetitions=(min(len(cell.values) for cell in used), max(len(cell.values) for cell in used)),
    )


def _row(by_count: Mapping[int, Cell]) -> tuple[tuple[int, float], ...]:
    return tuple((count, statistics.fmean(by_count[count].values)) for count in sorted(by_count))


def _overall(by_test: Mapping[str, Mapping[int, Cell]]) -> tuple[tuple[int, float], ...]:
    counts = sorted({count for row in by_test.values() for count in row})
    found = []
    for count in counts:
        indices = [
            10 * statistics.fmean(row[count].values) / INDEX[test].baseline
            for test, row in by_test.items()
            if count in row and statistics.fmean(row[count].values) > 0
        ]
        if len(indices) == len(INDEX):
            found.append((count, statistics.geometric_mean(indices)))
    return tuple(found)


def _instructions(by: Mapping[tuple[str, str], Mapping[int, Cell]], test: str) -> tuple[tuple[int, float, float], ...]:
    kernel, user = (by.get((test, f"{side} a unit"), {}) for side in ("kernel", "user"))
    return tuple(
        (count, statistics.fmean(kernel[count].values), statistics.fmean(user[count].values))
        for count in sorted(kernel)
        if count in user
    )


def _spread(values: Sequence[float]) -> float:
    mean = statistics.fmean(values)
    return (max(values) - min(values)) / mean if mean else 0.0


# --- in words


def score_rows(one: DataN) -> list[tuple[str, ...]]:
    """Return a row for each test: Data_N. From two containers on, it adds the share left of one container's score, and
    the published share where there is one. The last row has the overall index."""
    return [
        (name, unit, *(_score_cell(name, dict(values), count) for count in one.counts))
        for name, unit, values in one.scores
    ]


def _score_cell(name: str, by: Mapping[int, float], count: int) -> str:
    if count not in by:
        return "–"
    value = by[count]
    if count < 2 or by.get(1, 0) <= 0:
        return digits(value)
    published = left(BLOCK, WHETSTONE if name == _BY_PROCESSOR_TIME else name).get(count)
    published = None if name == WHETSTONE else published  # theirs was timed by processor time
    beside = "" if published is None else f"; published {published:.1f} %"
    return f"{digits(value)} ({100 * value / by[1]:.1f} %{beside})"


def instruction_rows(one: DataN) -> list[tuple[str, ...]]:
    """Return a row for each test: instructions for a unit of its work, kernel + programs."""
    rows = []
    for test, values in one.instructions:
        by = {count: (kernel, user) for count, kernel, user in values}
        cells = [f"{by[n][0]:,.0f} + {by[n][1]:,.0f}" if n in by else "–" for n in one.counts]
        rows.append((test, f"1 {_UNITS.get(INDEX[test].unit, 'unit')}", *cells))
    return rows


_UNITS = {"KBps": "KB", "MWIPS": "million", "lpm": "loop", "lps": "loop"}


def shapes(one: DataN) -> list[tuple[str, str, str]]:
    """Return the published shapes: the name of each, its published value, and ours."""
    rows = {name: dict(values) for name, _, values in one.scores}
    found = []
    for count, published in left(BLOCK, DHRYSTONE).items():
        here = _left(rows.get(DHRYSTONE, {}), count)
        found.append((f"Dhrystone in {count} containers, of one's", f"{published:.1f} %", _share(here)))
        found.append((f"1/N for {count}", "", _share(100 / count)))
    for name, words in ((WHETSTONE, "by virtual time"), (_BY_PROCESSOR_TIME, "by its own processor time")):
        for count in (n for n in one.counts if n > 1):
            share = left(BLOCK, WHETSTONE).get(count)
            by_time = name == _BY_PROCESSOR_TIME and share is not None
            published_ = f"{share:.1f} %, by processor time" if by_time else "–"
            found.append(
                (f"Whetstone in {count} containers, {words}", published_, _share(_left(rows.get(name, {}), count)))
            )
    for name in NAMES.values():
        by, against = rows.get(name, {}), against_host(BLOCK, name)
        here = 100 * (by[1] / by[0] - 1) if by.get(0) and by.get(1) else None
        found.append(
            (
                f"one container against the machine itself: {name}",
                f"{against:+.1f} %",
                "–" if here is None else f"{here:+.2f} %",
            )
        )
    return [row for row in found if row[2] != "–"]


def _left(by: Mapping[int, float], count: int) -> float | None:
    return 100 * by[count] / by[1] if count in by and by.get(1, 0) > 0 else None


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f} %"


def caption(one: DataN, *, quick: bool) -> str:
    """Return the title of the sheet, with its number of repetitions and their spread."""
    few, many = one.repetitions
    times = plural(many, "repetition") if few == many else f"{few} … {many} repetitions"
    parts = [f"{one.engine}: Data_N in virtual time, {times}"]
    if quick:
        parts.append("each test at a tenth of its duration")
    if one.spread is not None:
        parts.append(f"repetitions differ by at most {100 * one.spread:.2f} %")
    if one.instances is not None:
        parts.append(f"instances of one round by at most {100 * one.instances:.1f} %")
    return "; ".join(parts)


def header(one: DataN) -> tuple[str, ...]:
    """Return the columns of the tables of scores and instructions."""
    return (
        "test",
        "unit",
        *("machine itself" if n == 0 else plural(n, "container") for n in one.counts),
    )


def tables(one: DataN, *, quick: bool) -> list[tuple[str, tuple[str, ...], Sequence[tuple[str, ...]]]]:
    """Return the sheet as three tables, each with its title, columns and rows: scores, instructions, and shapes."""
    head = header(one)
    return [
        (caption(one, quick=quick), head, score_rows(one)),
        (INSTRUCTIONS, head, instruction_rows(one)),
        (SHAPES, SHAPES_HEAD, shapes(one)),
    ]
