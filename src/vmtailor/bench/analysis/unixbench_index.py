# SPDX-License-Identifier: Apache-2.0
"""The UnixBench index: its twelve tests with their baselines, and scores as published work gives them.

Data_N of a test is the mean over repetitions of the mean over instances; its index is Data_N / baseline × 10. The
overall index is the geometric mean over the twelve. The published script scores the passes of one machine in another
way: the geometric mean without the worst third. Tables give both."""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vmtailor.analysis.statistics.boot_statistics import resampled
from vmtailor.bench.analysis.benchmarks import INDEX, SCORE
from vmtailor.bench.analysis.cells import NATIVE, Against, Cell, against
from vmtailor.bench.analysis.phrases import instances
from vmtailor.bench.model.results import SuiteName

#: The sets of programs, by the words that variants begin with.
OURS, PUBLISHED = "our set", "published set"
_DRAWS = 2000


@dataclass(frozen=True)
class Indexed:
    """One test in one runtime. `data_n` with its 95 % interval, in the test's unit; `index`: computed from it;
    `script`: the index that the published script would compute from the same repetitions."""

    data_n: float
    low: float
    high: float
    index: float
    script: float
    count: int


@dataclass(frozen=True)
class IndexTable:
    """Indices of tests run in one variant. `columns`: the runtimes, in `count` instances at once; or, of one `engine`,
    the host and the numbers of instances, up to `count`. `rows`: test → column → figures; `overall`: column → index
    with its interval, where all twelve tests have values."""

    count: int
    variant: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[tuple[str, Indexed], ...]], ...]
    overall: tuple[tuple[str, float, float, float], ...]
    engine: str = ""


def published_score(test: str, said: str, seconds: float) -> float | None:
    """Return the score in the output of a published program: `COUNT|number|seconds of the unit|unit`, divided by the
    time that it prints (`TIME|seconds`) or took. A unit of 0 seconds is a rate already. None where there is no
    score."""
    count = re.search(r"^COUNT\|\s*([\d.]+(?:e[+-]?\d+)?)\s*\|\s*([\d.]+)\s*\|", said, re.MULTILINE)
    if count:
        value, unit = float(count[1]), float(count[2])
        time = re.search(r"^TIME\|\s*([\d.]+)", said, re.MULTILINE)
        took = float(time[1]) if time else seconds
        return value if unit == 0 else value * unit / took if took > 0 else None
    found = re.search(r"^MWIPS\s+([\d.]+)", said, re.MULTILINE) if test == "whetstone-double" else None
    return float(found[1]) if found else None


def without_worst_third(values: Sequence[float]) -> float:
    """Return the geometric mean of some scores without the worst third, whose size is rounded down."""
    return statistics.geometric_mean(sorted(values)[len(values) // 3 :])


@dataclass(frozen=True)
class Checked:
    """One test of our set against the published program of the same name, in one runtime: medians of the scores, and
    their ratio with its 95 % interval."""

    test: str
    runtime: str
    ours: float
    published: float
    against: Against | None


def checked(cells: Sequence[Cell]) -> list[Checked]:
    """Compare our set with the published one, test by test, where both were measured in the same way."""
    sets: dict[str, dict[tuple[str, str, int, str], Cell]] = {OURS: {}, PUBLISHED: {}}
    for cell in cells:
        which, _, way = cell.key.variant.partition(", ")
        if cell.key.suite == SuiteName.UNIXBENCH and cell.key.figure == SCORE and which in sets and cell.values:
            sets[which][cell.key.test, cell.key.runtime, cell.key.count, way] = cell
    return [
        Checked(
            test=key[0],
            runtime=key[1],
            ours=statistics.median(ours.values),
            published=statistics.median(sets[PUBLISHED][key].values),
            against=against(sets[PUBLISHED][key].values, ours.values, larger_is_better=True),
        )
        for key, ours in sets[OURS].items()
        if key in sets[PUBLISHED]
    ]


def index_tables(cells: Sequence[Cell], order: Sequence[str]) -> list[IndexTable]:
    """Return a table for each number of instances and variant; none where the suite was not measured. `order`: of the
    runtimes."""
    groups: dict[tuple[int, str], dict[str, dict[str, Cell]]] = defaultdict(lambda: defaultdict(dict))
    for cell in cells:
        key = cell.key
        if key.suite == SuiteName.UNIXBENCH and key.figure == SCORE and key.test in INDEX and cell.values:
            groups[key.count, key.variant][key.test][key.runtime] = cell
    return [_table(count, variant, tests, order) for (count, variant), tests in groups.items()]


def tables_over_n(tables: Sequence[IndexTable]) -> list[IndexTable]:
    """Return the tables in the published layout: one for each variant and engine that ran several instances at once.
    Its columns are native, outside any instance, and the numbers of instances."""
    found = []
    ways = dict.fromkeys((name, one.variant) for one in tables for name in one.columns if one.count > 1)
    for engine, variant in ways:
        taken = [(NATIVE, NATIVE, 1)] if engine != NATIVE else []
        counts = sorted(one.count for one in tables if one.variant == variant and engine in one.columns)
        taken += [(engine, instances(count), count) for count in counts]
        rows: dict[str, list[tuple[str, Indexed]]] = {test: [] for test in INDEX}
        overall: list[tuple[str, float, float, float]] = []
        for name, column, count in taken:
            for one in (one for one in tables if (one.count, one.variant) == (count, variant)):
                for test, by in one.rows:
                    rows[test] += [(column, figures) for other, figures in by if other == name]
                overall += [(column, value, low, high) for other, value, low, high in one.overall if other == name]
        met = {column for by in rows.values() for column, _ in by}
        columns = tuple(column for _, column, _ in taken if column in met)
        kept = tuple((test, tuple(by)) for test, by in rows.items() if by)
        found.append(
            IndexTable(
                count=counts[-1], variant=variant, columns=columns, rows=kept, overall=tuple(overall), engine=engine
            )
        )
    return found


def _table(count: int, variant: str, tests: Mapping[str, Mapping[str, Cell]], order: Sequence[str]) -> IndexTable:
    met = dict.fromkeys(name for by in tests.values() for name in by)
    runtimes = tuple(name for name in dict.fromkeys((*order, *met)) if name in met)
    draws: dict[str, list[np.ndarray]] = defaultdict(list)
    means: dict[str, list[float]] = defaultdict(list)
    rows = []
    for test in (name for name in INDEX if name in tests):
        found = []
        for name, cell in tests[test].items():
            one, drawn = _indexed(INDEX[test].baseline, cell.values)
            if one is None:
                continue
            found.append((name, one))
            draws[name].append(drawn)
            means[name].append(one.index)
        rows.append((test, tuple(found)))
    overall = []
    for name in runtimes:
        if len(means[name]) == len(INDEX):
            drawn = np.exp(np.mean(np.log(np.stack(draws[name])), axis=0))
            low, high = np.percentile(drawn, [2.5, 97.5])
            overall.append((name, statistics.geometric_mean(means[name]), float(low), float(high)))
    return IndexTable(count=count, variant=variant, columns=runtimes, rows=tuple(rows), overall=tuple(overall))


def _indexed(baseline: float, values: Sequence[float]) -> tuple[Indexed | None, np.ndarray]:
    if min(values) <= 0:
        return None, np.empty(0)
    drawn = resampled(values, _DRAWS).mean(axis=1)
    low, high = np.percentile(drawn, [2.5, 97.5])
    mean = statistics.fmean(values)
    script = without_worst_third(values)
    scale = 10 / baseline
    return Indexed(
        data_n=mean, low=float(low), high=float(high), index=mean * scale, script=script * scale, count=len(values)
    ), drawn * scale


def index_title(found: IndexTable, facts: Mapping[str, str]) -> str:
    """Return the title of a table, with the compiler and flags of its set."""
    several = f"{found.engine}, up to {instances(found.count)} at once" if found.engine else instances(found.count)
    which = found.variant.partition(", ")[0]
    made = ", ".join(facts[key] for key in (f"{which} compiler", f"{which} flags") if facts.get(key))
    return f"UnixBench index, {several}, {found.variant}{f' (compiled by {made})' if made else ''}"


def index_rows(found: IndexTable, *, scores: bool = True) -> list[tuple[str, ...]]:
    """Return a row for each test: its index with the 95 % interval, and with `scores` the score itself. An engine's own
    table adds the share of one instance's score that each of several has. The last two rows have the overall index."""
    rows = []
    for test, by_column in found.rows:
        scale = 10 / INDEX[test].baseline
        scores_of = {name: one.data_n for name, one in by_column}
        known = dict(by_column)
        cells = []
        for name in found.columns:
            if name not in known:
                cells.append("–")
                continue
            one = known[name]
            words = [f"{one.low * scale:.0f} … {one.high * scale:.0f}"]
            words += [f"{_score(one.data_n)} {INDEX[test].unit}"] if scores else []
            cells.append(f"{one.index:.1f} ({'; '.join(words + _share(found, name, scores_of))})")
        rows.append((test, *cells))
    whole = {name: (value, low, high) for name, value, low, high in found.overall}
    values = {name: value for name, (value, _, _) in whole.items()}
    script = _script(found)
    overall, scored = [], []
    for name in found.columns:
        if name not in whole:
            overall.append("needs all twelve")
            scored.append("–")
            continue
        value, low, high = whole[name]
        overall.append(f"{value:.1f} ({'; '.join([f'{low:.0f} … {high:.0f}', *_share(found, name, values)])})")
        scored.append(f"{script[name]:.1f}")
    return [*rows, ("overall", *overall), ("overall, as the script scores", *scored)]


def _share(found: IndexTable, column: str, values: Mapping[str, float]) -> list[str]:
    """Return how much of what one instance has each of several has; none but in an engine's own table."""
    one = values.get(instances(1), 0.0)
    if not found.engine or column in (NATIVE, instances(1)) or one <= 0:
        return []
    return [f"{100 * values[column] / one:.1f} % of one's"]


#: Beyond this factor, a test of ours is called far from the published one: its score depends on the program then.
FAR = 2.0
CHECK_TITLE = "Our set against the published one"
CHECK_HEADER = ("test", "runtime", "our set", "published set", "ratio (95 %)", "")


def check_rows(found: Sequence[Checked]) -> list[tuple[str, ...]]:
    """Return a row for each test: both scores, their ratio, and a remark where they are far apart."""
    rows: list[tuple[str, ...]] = []
    for one in found:
        unit, a = INDEX[one.test].unit, one.against
        ratio, far = "–", ""
        if a is not None:
            ratio = a.words
            far = f"far apart: {one.test} of ours is another program" if not 1 / FAR <= a.ratio <= FAR else ""
        scores = (f"{_score(one.ours)} {unit}", f"{_score(one.published)} {unit}")
        rows.append((one.test, one.runtime, *scores, ratio, far))
    return rows


def _score(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _script(found: IndexTable) -> dict[str, float]:
    product: dict[str, float] = {}
    for _, by_column in found.rows:
        for name, one in by_column:
            product[name] = product.get(name, 1.0) * one.script ** (1 / len(INDEX))
    return product
