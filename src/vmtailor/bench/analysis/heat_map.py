# SPDX-License-Identifier: Apache-2.0
"""Isolation as published tables have it: (t2 − t1) / t1 for each stress and runtime, in percent, and the share of
instances that did not report."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from vmtailor.bench.analysis.benchmarks import RATIO, SILENT
from vmtailor.bench.analysis.cells import Cell, cells_of
from vmtailor.bench.model.results import BenchTrial, HostRun, SuiteName

#: The only figure that ranks runtimes: the times themselves depend on the server, not on isolation.
RANKED = RATIO
#: Percent of loss for the darkest shade, and the number of shades.
WORST, SHADES = 400.0, 6


@dataclass(frozen=True)
class Degraded:
    """One stress in one runtime. `percent` with its 95 % interval; None where nobody reported, a lower bound where some
    did not. `silent`: the share of instances that did not report; `fate`: the most frequent end of the misbehaving
    instance; `failed`: the reason of failed trials."""

    percent: float | None
    low: float | None
    high: float | None
    silent: float
    samples: int
    fate: str
    failed: str = ""

    @property
    def shade(self) -> int:
        """Return 0 for nothing lost, SHADES for the worst loss and for instances that did not report."""
        if self.percent is None or self.silent >= 0.5:
            return SHADES
        return min(SHADES, max(0, round(SHADES * self.percent / WORST + (0.49 if self.percent > 10 else 0))))

    @property
    def words(self) -> str:
        if self.failed and not self.samples:
            return "failed"
        if self.percent is None:
            return "did not report"
        if self.silent > 0:
            return f"at least {self.percent:+.0f} %, {100 * self.silent:.0f} % did not report"
        return f"{self.percent:+.0f} %"


@dataclass(frozen=True)
class HeatMap:
    """Stresses down, runtimes across, for one variant (with limits, without)."""

    variant: str
    runtimes: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Degraded | None, ...]], ...]


def heat_maps(run: HostRun) -> list[HeatMap]:
    """Return the maps of a run; none where the suite was not measured."""
    trials: dict[str, dict[str, dict[str, list[BenchTrial]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for trial in run.trials:
        if trial.suite == SuiteName.ISOLATION and trial.block > 0:
            trials[trial.variant][trial.test][trial.runtime].append(trial)
    ratios = {
        (c.key.variant, c.key.test, c.key.runtime): c
        for c in cells_of(run)
        if c.key.suite == SuiteName.ISOLATION and c.key.figure == RATIO
    }
    found = []
    for variant, tests in trials.items():
        met = {name for by in tests.values() for name in by}
        names = tuple(one.runtime for one in run.identities if one.runtime in met)
        rows = tuple(
            (
                test,
                tuple(_degraded(by[name], ratios.get((variant, test, name))) if name in by else None for name in names),
            )
            for test, by in tests.items()
        )
        found.append(HeatMap(variant, names, rows))
    return found


def _degraded(trials: Sequence[BenchTrial], ratios: Cell | None) -> Degraded:
    silent = [figure.value / 4 for trial in trials for figure in trial.figures if figure.name == SILENT]
    fates = Counter(trial.notes[0] for trial in trials if trial.notes)
    failed = next((trial.failure.reason for trial in trials if trial.failure is not None), "")
    nobody = bool(silent) and min(silent) == 1
    s = ratios.summary if ratios is not None and not nobody else None
    values = (None, None, None) if s is None else tuple(100 * (x - 1) for x in (s.median, s.low, s.high))
    fate = fates.most_common(1)[0][0] if fates else ""
    return Degraded(
        percent=values[0],
        low=values[1],
        high=values[2],
        silent=statistics.fmean(silent) if silent else 0.0,
        samples=len(silent),
        fate=fate,
        failed=failed,
    )


def tip(stress: str, runtime: str, one: Degraded) -> str:
    """Return a cell in full: its words, interval, fate and samples."""
    lines = [f"{runtime}, {stress}: {one.words}"]
    if one.low is not None and one.high is not None:
        lines.append(f"95 %: {one.low:+.0f} … {one.high:+.0f} %")
    lines += [text for text in (one.fate, one.failed) if text]
    return "\n".join([*lines, f"{one.samples} samples"])
