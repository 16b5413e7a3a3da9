# SPDX-License-Identifier: Apache-2.0
"""Test whether repeated boots fall into two groups. A delay that comes in some boots only has no mean worth telling."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

#: Fewer boots cannot tell two modes from chance.
MIN_BOOTS = 6
#: A group needs so many boots, or it is an outlier.
MIN_GROUP = 2
#: The groups lie further apart than this share of the median, or they are of no interest.
MIN_DISTANCE = 0.02
_DRAWS = 2000


@dataclass(frozen=True)
class Mode:
    """One group of boots: median and how many."""

    median: float
    count: int


def find(values: Sequence[float], *, level: float = 0.05) -> tuple[Mode, ...]:
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
        random.uniform(size=(_DRAWS, len(values))),
        random.normal(size=(_DRAWS, len(values))),
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
