# SPDX-License-Identifier: Apache-2.0
"""Repeated boots as figures: median with an interval, and whether two machines differ. The boot is the unit of
repetition."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vmtailor.analysis.statistics import significance
from vmtailor.analysis.statistics.modes import Mode, find
from vmtailor.model.change import Verdict

CONFIDENCE = 0.95
_DRAWS = 4000
#: Differences below this share are of no interest on the wall clock.
SAME_SHARE = 0.02


@dataclass(frozen=True)
class Summary:
    """`low` and `high`: 95 % bootstrap interval of the median. `modes` has two entries where the boots fall into two
    groups, and then the median should not be told."""

    count: int
    median: float
    low: float
    high: float
    min: float
    max: float
    modes: tuple[Mode, ...]

    @property
    def two_modes(self) -> bool:
        return len(self.modes) == 2


def summarise(values: Sequence[float]) -> Summary | None:
    """Return the figures of some boots; None without any."""
    if not values:
        return None
    low, high = _interval(np.median(resampled(values, _DRAWS), axis=1)) if len(values) > 1 else (values[0], values[0])
    return Summary(
        count=len(values),
        median=statistics.median(values),
        low=low,
        high=high,
        min=min(values),
        max=max(values),
        modes=find(values),
    )


def difference(before: Sequence[float], after: Sequence[float]) -> tuple[float, float, float] | None:
    """Return how much less the median is afterwards, with its 95 % interval (the figure alone where a side has one
    value). The result is None where a side is empty."""
    if not before or not after:
        return None
    found = significance.compare(before, after)
    if found.low is None or found.high is None:
        return -found.change, -found.change, -found.change
    return -found.change, -found.high, -found.low


def judge(before: Sequence[float], after: Sequence[float], *, exact: bool) -> Verdict:
    """Better (less), worse, same or undecided. `exact`: of a figure that hardly varies, such as instructions."""
    if not before or not after:
        return Verdict.UNDECIDED
    if exact:
        return significance.exact(before, after).verdict
    return significance.compare(before, after, significance.Thresholds(relative=SAME_SHARE)).verdict


def resampled(values: Sequence[float], draws: int) -> np.ndarray:
    """Return as many values, drawn from them with replacement, so many times: a row a draw, equal rows at each call."""
    random = np.random.default_rng(0)
    data = np.asarray(values, float)
    return data[random.integers(0, len(data), (draws, len(data)))]


def _interval(draws: np.ndarray) -> tuple[float, float]:
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(draws, [tail, 100 - tail])
    return float(low), float(high)
