# SPDX-License-Identifier: Apache-2.0
"""Trials → cells: one figure of one test in one runtime, with its interval, and against native (on the instruction
clock, against the stock machine)."""

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

#: What all others are compared with.
NATIVE = "native"
#: Differences below the first share are of no interest; where none was found, and the second can be ruled out, cells
#: are the same.
_OF_INTEREST, _ALIKE = 0.02, 0.05
#: Thresholds of logarithms, whose differences are ratios.
_OF_RATIOS = significance.Thresholds(0.0, math.log1p(_OF_INTEREST), math.log1p(_ALIKE))
#: A share of processor time that others took from which on it is said.
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
        """Return the key without the runtime: cells of one row are compared."""
        return self.suite, self.test, self.figure, self.count, self.variant

    @property
    def of_test(self) -> TestKey:
        return self.suite, self.test, self.count, self.variant


@dataclass(frozen=True)
class Against:
    """A cell against the native one of its row. `ratio` of medians, with the 95 % interval of the ratio between a value
    of either; `verdict` of the cell: better, worse, same or undecided, which few samples always are."""

    ratio: float
    low: float | None
    high: float | None
    verdict: Verdict

    @property
    def times(self) -> str:
        return f"{self.ratio:.2f}×"

    @property
    def between(self) -> str:
        """Return the interval in words; nothing where there is none."""
        return "" if self.low is None or self.high is None else f"{self.low:.2f} … {self.high:.2f}"

    @property
    def words(self) -> str:
        """Return the ratio with its interval."""
        return self.times + (f" ({self.between})" if self.between else "")


@dataclass(frozen=True)
class Cell:
    """`values`: one a repetition, the mean over instances that ran at once (Data_N). `summary` is None where all
    trials failed. `floor`: the mean of the lowest 30 (of times) where there are as many, never instead of the
    median. `apart`: it was not measured in the same blocks as native, but before all of it or after."""

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
    """Return the cells of one host's run, in the order in which they were first met. Warm-ups count for nothing."""
    return cells(run.trials)


def cells(trials: Iterable[BenchTrial]) -> list[Cell]:
    """Return the cells of any trials, which are of one host and image."""
    values: dict[CellKey, list[float]] = defaultdict(list)
    units: dict[CellKey, tuple[str, bool]] = {}
    rows: dict[CellKey, list[BenchTrial]] = defaultdict(list)
    spreads: dict[CellKey, list[float]] = defaultdict(list)
    counted = [trial for trial in trials if trial.block > 0]
    names: dict[TestKey, dict[str, tuple[str, bool]]] = defaultdict(dict)
    for trial in counted:
        for figure in trial.figures:
            names[trial.of_test].setdefault(figure.name, (figure.unit, figure.larger_is_better))
    for trial in counted:
        for name, unit in (names[trial.of_test] or {trial.test: ("", False)}).items():
            key = CellKey(
                suite=trial.suite,
                test=trial.test,
                figure=name,
                count=trial.count,
                variant=trial.variant,
                runtime=trial.runtime,
            )
            units[key] = unit
            rows[key].append(trial)
            several = [figure.value for figure in trial.figures if figure.name == name]
            if several:
                values[key].append(statistics.fmean(several))
                if len(several) > 1:
                    spreads[key].append(max(several) - min(several))
    natives = {key.row: key for key in rows if key.runtime == baseline(key)}
    found = []
    for key in list(rows):
        native = natives.get(key.row)
        cell = _cell(key, units[key], values[key], rows[key], spreads[key], values[native] if native else [])
        apart = native is not None and not is_counted(key.variant) and _apart(rows[key], rows[native])
        found.append(replace(cell, apart=apart))
    return found


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
    values: Sequence[float],
    trials: Sequence[BenchTrial],
    spreads: Sequence[float],
    native: Sequence[float],
) -> Cell:
    noise = [trial.noise.others + trial.noise.steal for trial in trials if trial.noise is not None]
    return Cell(
        key=key,
        unit=unit[0],
        larger_is_better=unit[1],
        values=tuple(values),
        summary=boot_statistics.summarise(values),
        against=set_against(key, native, values, larger_is_better=unit[1]) if key.runtime != baseline(key) else None,
        failures=tuple(trial.failure for trial in trials if trial.failure is not None),
        unstable=significance.unstable(values),
        noisy=not is_counted(key.variant) and bool(noise) and statistics.median(noise) >= NOISY,
        spread_over_instances=statistics.median(spreads) if spreads else None,
        command=next((trial.command for trial in trials if trial.command), ""),
        floor=statistics.fmean(sorted(values)[:30]) if len(values) >= 30 and not unit[1] else None,
    )


def baseline(key: CellKey) -> str:
    """Return what a cell is compared with: native, and on the instruction clock the machine that everybody has. In
    virtual time nothing: its sheet sets one number of instances beside the others."""
    if key.variant == VIRTUAL:
        return ""
    return STOCK if key.variant == CLOCK else NATIVE


def set_against(
    key: CellKey, before: Sequence[float], after: Sequence[float], *, larger_is_better: bool
) -> Against | None:
    """Return the values of a cell against others of its row, by the rule for what it counts or times."""
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
    """Compare one side with another; None where either has no values, or one can be no share of the other: a
    difference that others swayed below nothing."""
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
        # Of few and scattered samples the difference may be more than all there is: no ratio is below nothing.
        ends = _ends(found, lambda end: max(0.0, 1 + sign * end / before))
    few = found.verdict is Verdict.SAME and not significance.can_decide(len(native), len(values))
    return Against(statistics.median(values) / before, *ends, Verdict.UNDECIDED if few else found.verdict)


def _ends(found: significance.Difference, ratio: Callable[[float], float]) -> tuple[float | None, float | None]:
    """Return the interval of a difference as one of a ratio."""
    if found.low is None or found.high is None:
        return None, None
    low, high = sorted(map(ratio, (found.low, found.high)))
    return low, high
