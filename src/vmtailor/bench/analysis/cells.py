# SPDX-License-Identifier: Apache-2.0
"""Trials → cells: one figure of one test in one runtime, with its interval and its ratio to native. On the instruction
clock, ratios are to the stock machine."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from vmtailor.analysis.statistics import boot_statistics, significance
from vmtailor.analysis.statistics.boot_statistics import Summary
from vmtailor.bench.model.job import STOCK
from vmtailor.bench.model.results import CLOCK, VIRTUAL, BenchFailure, BenchTrial, HostRun, TestKey, is_counted
from vmtailor.model.change import Verdict

#: The runtime that all others are compared with.
NATIVE = "native"
#: Differences below the first share are ignored. Cells without a difference are the same where the second share can be
#: ruled out.
_OF_INTEREST, _ALIKE = 0.02, 0.05
#: Thresholds of logarithms, whose differences are ratios.
_OF_RATIOS = significance.Thresholds(0.0, math.log1p(_OF_INTEREST), math.log1p(_ALIKE))
#: The share of processor time from which other work makes a cell noisy.
NOISY = 0.10


@dataclass(frozen=True)
class CellKey:
    """The place of a cell in the tables. `figure`: its name, as the suite gives it."""

    suite: str
    test: str
    figure: str
    count: int
    variant: str
    runtime: str

    @property
    def row(self) -> tuple[str, str, str, int, str]:
        """Return the key without the runtime: cells of one row are compared with each other."""
        return self.suite, self.test, self.figure, self.count, self.variant

    @property
    def of_test(self) -> TestKey:
        return self.suite, self.test, self.count, self.variant


@dataclass(frozen=True)
class Against:
    """A cell compared with the native one of its row. `ratio`: of the medians; `low`, `high`: the 95 % interval of the
    ratio between two single values. `verdict`: better, worse, same, or undecided, as few samples always are."""

    ratio: float
    low: float | None
    high: float | None
    verdict: Verdict

    @property
    def times(self) -> str:
        return f"{self.ratio:.2f}×"

    @property
    def between(self) -> str:
        """Return the interval in words; empty where there is none."""
        return "" if self.low is None or self.high is None else f"{self.low:.2f} … {self.high:.2f}"

    @property
    def words(self) -> str:
        """Return the ratio with its interval."""
        return self.times + (f" ({self.between})" if self.between else "")


@dataclass(frozen=True)
class Cell:
    """`values`: one for each repetition, the mean over instances that ran at once (Data_N). `summary`: None where all
    trials failed. `floor`: the mean of the 30 lowest times, where there are as many; it never replaces the median.
    `apart`: it was not measured in the same blocks as native, but before all of them or after."""

    key: CellKey
    unit: str
    larger_is_better: bool
    values: tuple[float, ...]
    summary: Summary | None
    against: Against | None = None
    failures: tuple[BenchFailure, ...] = ()
    unstable: bool = False
    noisy: bool = False
    spread_over_instances: float | None = None
    command: str = ""
    floor: float | None = None
    apart: bool = False


def cells_of(run: HostRun) -> list[Cell]:
    """Return the cells of one host's run, in the order in which they were first measured. Warm-ups do not count."""
    return cells(run.trials)


def cells(trials: Iterable[BenchTrial]) -> list[Cell]:
    """Return the cells of some trials, all of one host and image."""
    counted = [trial for trial in trials if trial.block > 0]
    units: dict[TestKey, dict[str, tuple[str, bool]]] = defaultdict(dict)
    for trial in counted:
        for figure in trial.figures:
            units[trial.of_test].setdefault(figure.name, (figure.unit, figure.larger_is_better))
    rows: dict[CellKey, list[BenchTrial]] = defaultdict(list)
    for trial in counted:
        for name in units[trial.of_test] or (trial.test,):
            key = CellKey(
                suite=trial.suite,
                test=trial.test,
                figure=name,
                count=trial.count,
                variant=trial.variant,
                runtime=trial.runtime,
            )
            rows[key].append(trial)
    samples = {key: _samples(row, key.figure) for key, row in rows.items()}
    natives = {key.row: key for key in rows if key.runtime == baseline(key)}
    found = []
    for key, row in rows.items():
        native, unit = natives.get(key.row), units[key.of_test].get(key.figure, ("", False))
        cell = _cell(key, unit, row, samples[key], samples[native] if native else [])
        apart = native is not None and not is_counted(key.variant) and _apart(row, rows[native])
        found.append(replace(cell, apart=apart))
    return found


def _samples(trials: Sequence[BenchTrial], figure: str) -> list[list[float]]:
    """Return the values of a figure, one for each instance, of the trials that have any."""
    found = ([one.value for one in trial.figures if one.name == figure] for trial in trials)
    return [values for values in found if values]


def _apart(one: Sequence[BenchTrial], other: Sequence[BenchTrial]) -> bool:
    """Return whether all of one was measured before all of the other."""
    (begin, end), (other_begin, other_end) = (
        (min(trial.started_unix_s for trial in trials), max(trial.started_unix_s for trial in trials))
        for trials in (one, other)
    )
    return end < other_begin or other_end < begin


def _cell(
    key: CellKey,
    unit: tuple[str, bool],
    trials: Sequence[BenchTrial],
    samples: Sequence[Sequence[float]],
    native: Sequence[Sequence[float]],
) -> Cell:
    values, before = ([statistics.fmean(several) for several in side] for side in (samples, native))
    spreads = [max(several) - min(several) for several in samples if len(several) > 1]
    noise = [trial.noise.others + trial.noise.steal for trial in trials if trial.noise is not None]
    return Cell(
        key=key,
        unit=unit[0],
        larger_is_better=unit[1],
        values=tuple(values),
        summary=boot_statistics.summarise(values),
        against=set_against(key, before, values, larger_is_better=unit[1]) if key.runtime != baseline(key) else None,
        failures=tuple(trial.failure for trial in trials if trial.failure is not None),
        unstable=significance.unstable(values),
        noisy=not is_counted(key.variant) and bool(noise) and statistics.median(noise) >= NOISY,
        spread_over_instances=statistics.median(spreads) if spreads else None,
        command=next((trial.command for trial in trials if trial.command), ""),
        floor=statistics.fmean(sorted(values)[:30]) if len(values) >= 30 and not unit[1] else None,
    )


def baseline(key: CellKey) -> str:
    """Return the runtime that a cell is compared with: native, and on the instruction clock the stock machine. In
    virtual time it is empty: that sheet compares numbers of instances instead."""
    if key.variant == VIRTUAL:
        return ""
    return STOCK if key.variant == CLOCK else NATIVE


def compared_with(cells: Iterable[Cell]) -> str:
    """Return the runtime that the ratios of some cells of one test are to; empty where none has a ratio."""
    return next((baseline(cell.key) for cell in cells if cell.against is not None), "")


def set_against(
    key: CellKey, before: Sequence[float], after: Sequence[float], *, larger_is_better: bool
) -> Against | None:
    """Compare the values of a cell with others of its row, by the rule for counts or the one for times."""
    if key.variant != CLOCK:
        return against(before, after, larger_is_better=larger_is_better)
    if not before or not after or statistics.median(before) <= 0:
        return None
    found, middle = significance.exact(before, after), statistics.median(before)
    ends = (
        (None, None) if found.low is None or found.high is None else (1 + found.low / middle, 1 + found.high / middle)
    )
    return Against(statistics.median(after) / middle, ends[0], ends[1], found.verdict)


def against(native: Sequence[float], values: Sequence[float], *, larger_is_better: bool) -> Against | None:
    """Compare one side with another. Returns None where a side has no values, or where a negative median (other work on
    the host swayed a difference) allows no ratio."""
    if not native or not values or statistics.median(values) < 0:
        return None
    before = statistics.median(native)
    if before <= 0:
        return None
    sign = -1 if larger_is_better else 1
    if min(*native, *values) > 0:
        left, right = ([sign * math.log(value) for value in side] for side in (native, values))
        found = significance.compare(left, right, _OF_RATIOS)
        ends = _ends(found, lambda end: math.exp(sign * end))
    else:  # which has no logarithm
        thresholds = significance.Thresholds(_OF_INTEREST, 0.0, _ALIKE * before)
        found = significance.compare([sign * value for value in native], [sign * value for value in values], thresholds)
        # With few and scattered samples, the difference may exceed the whole; but no ratio is below zero.
        ends = _ends(found, lambda end: max(0.0, 1 + sign * end / before))
    few = found.verdict is Verdict.SAME and not significance.can_decide(len(native), len(values))
    return Against(statistics.median(values) / before, *ends, Verdict.UNDECIDED if few else found.verdict)


def _ends(found: significance.Difference, ratio: Callable[[float], float]) -> tuple[float | None, float | None]:
    """Return the interval of a difference as one of a ratio."""
    if found.low is None or found.high is None:
        return None, None
    low, high = sorted(map(ratio, (found.low, found.high)))
    return low, high
