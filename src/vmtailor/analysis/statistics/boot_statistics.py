# SPDX-License-Identifier: Apache-2.0
"""Repeated boots as figures: median with an interval, whether they fall into two groups, and whether two machines
differ. The boot is the unit of repetition. A delay that comes in some boots only has no mean worth telling."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vmtailor.analysis.statistics import significance
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
        modes=find_modes(values),
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


def judge(before: Sequence[float], after: Sequence[float], *, exact: bool, grain: float = 0.0) -> Verdict:
    """Better (less), worse, same or undecided. `exact`: of a figure that hardly varies, such as instructions. `grain`:
    the share of a value that such a figure is right to."""
    if not before or not after:
        return Verdict.UNDECIDED
    if exact:
        return significance.exact(before, after, max(grain, significance.EXACT_SHARE)).verdict
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


#: Fewer boots cannot tell two modes from chance.
MIN_BOOTS = 6
#: Boots that make a group; fewer are outliers.
MIN_GROUP = 2
#: The groups lie further apart than this share of the median, or they are of no interest.
MIN_DISTANCE = 0.02
_MODE_DRAWS = 2000


@dataclass(frozen=True)
class Mode:
    """One group of boots: median and how many."""

    median: float
    count: int


def find_modes(values: Sequence[float], *, level: float = 0.05) -> tuple[Mode, ...]:
    """Return one mode or two, none of no values. The figure is the share of the variance that goes when the samples are
    split in the best place. Two, where samples that have one mode (the flattest and the normal distribution are tried)
    would split as well less often than `level`."""
    ordered = np.sort(np.asarray(values, float))
    whole = (Mode(float(statistics.median(values)), len(values)),) if len(values) else ()
    if len(values) < MIN_BOOTS or ordered[0] == ordered[-1]:
        return whole
    score, place = _split(ordered[None, :])
    cut, reached = int(np.max(place)), float(np.max(score))
    low, high = ordered[:cut], ordered[cut:]
    distance = float(np.median(high) - np.median(low))
    random = np.random.default_rng(0)
    draws: tuple[NDArray[np.float64], ...] = (
        random.uniform(size=(_MODE_DRAWS, len(values))),
        random.normal(size=(_MODE_DRAWS, len(values))),
    )
    p = max(float(np.mean(_split(np.sort(sample, axis=1))[0] >= reached)) for sample in draws)
    if p >= level or distance < MIN_DISTANCE * abs(statistics.median(values)):
        return whole
    return (Mode(float(np.median(low)), len(low)), Mode(float(np.median(high)), len(high)))


def _split(rows: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return, for rows of sorted samples, the share of variance that the best split explains, and the number of samples
    below it."""
    count = rows[0].size
    sums, total = np.cumsum(rows, axis=1), rows.sum(axis=1, keepdims=True)
    below = np.arange(MIN_GROUP, count - MIN_GROUP + 1)
    means_low = sums[:, below - 1] / below
    means_high = (total - sums[:, below - 1]) / (count - below)
    between = below * (count - below) / count * (means_high - means_low) ** 2
    best = between.argmax(axis=1)
    variance = ((rows - total / count) ** 2).sum(axis=1)
    share = between.max(axis=1) / np.where(variance > 0, variance, 1.0)
    return share, below[best]
