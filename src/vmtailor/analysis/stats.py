# SPDX-License-Identifier: Apache-2.0
"""Whether a difference between two sets of repeated measurements is real.

The interval of the difference of medians is a BCa bootstrap, the probability a permutation test of the same
difference; both must
agree, and the difference must be worth something, relatively and absolutely. What cannot be told is `undecided`,
never `same`.
"""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from vmtailor.model.sample import Verdict

CONFIDENCE = 0.95
RESAMPLES = 2000
#: Spread of σ over the mean from which a side counts as unstable.
UNSTABLE = 0.10
#: Share of the lowest values whose mean is the floor estimate, where there are enough.
FLOOR_COUNT = 30


@dataclass(frozen=True)
class Thresholds:
    """A difference below either is of no interest. `absolute` is in the unit of the values."""

    relative: float = 0.05
    absolute: float = 0.0

    def least(self, before: float) -> float:
        return max(self.relative * abs(before), self.absolute)


@dataclass(frozen=True)
class Difference:
    """Medians of both sides, their difference (after less before) with its interval, and what to make of it.

    `low` and `high` are None where one side has a single value: then there is no spread to judge by. `p` is None
    likewise."""

    before: float
    after: float
    change: float
    low: float | None
    high: float | None
    p: float | None
    verdict: Verdict
    unstable: bool = False


def unstable(values: Sequence[float]) -> bool:
    """Whether the standard deviation is a tenth of the mean or more."""
    if len(values) < 2:
        return False
    mean = statistics.fmean(values)
    return mean != 0 and statistics.stdev(values) >= UNSTABLE * abs(mean)


def floor(values: Sequence[float]) -> float:
    """The mean of the lowest 30 values (of all, where there are fewer): what it costs undisturbed. Shown beside the
    median."""
    return statistics.fmean(sorted(values)[:FLOOR_COUNT])


def compare(before: Sequence[float], after: Sequence[float], thresholds: Thresholds = Thresholds()) -> Difference:
    """Judge two sides, smaller being better. Raises ValueError for an empty side."""
    if not before or not after:
        raise ValueError("a side has no values")
    left, right = statistics.median(before), statistics.median(after)
    change = right - left
    shaky = unstable(before) or unstable(after)
    if len(before) < 2 or len(after) < 2:
        return Difference(left, right, change, None, None, None, Verdict.UNDECIDED, shaky)
    least = thresholds.least(left)
    low, high = min(after) - max(before), max(after) - min(before)
    if -least <= low and high <= least:
        # Even the extremes are no further apart: no need to resample, of which a boot has thousands of rows.
        return Difference(left, right, change, low, high, None, Verdict.SAME, shaky)
    low, high = interval(before, after)
    if -least <= low and high <= least:
        return Difference(left, right, change, low, high, None, Verdict.SAME, shaky)
    if abs(change) < least or low <= 0 <= high:
        return Difference(left, right, change, low, high, None, Verdict.UNDECIDED, shaky)
    p = probability(before, after)
    verdict = Verdict.UNDECIDED
    if p <= 1 - CONFIDENCE:
        verdict = Verdict.BETTER if change < 0 else Verdict.WORSE
    return Difference(left, right, change, low, high, p, verdict, shaky)


def interval(before: Sequence[float], after: Sequence[float]) -> tuple[float, float]:
    """The 95 % BCa bootstrap interval of median(after) - median(before); the percentile method where BCa has no
    answer."""
    import numpy as np
    from scipy.stats import bootstrap

    left, right = np.asarray(before, float), np.asarray(after, float)
    if np.ptp(left) == 0 and np.ptp(right) == 0:
        change = float(right[0] - left[0])
        return change, change
    for method in ("BCa", "percentile"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = bootstrap(
                (left, right),
                lambda a, b, axis=-1: np.median(b, axis=axis) - np.median(a, axis=axis),
                n_resamples=RESAMPLES,
                confidence_level=CONFIDENCE,
                method=method,
                vectorized=True,
                random_state=np.random.default_rng(1),
            )
        low, high = float(result.confidence_interval.low), float(result.confidence_interval.high)
        if np.isfinite(low) and np.isfinite(high):
            return low, high
    change = float(np.median(right) - np.median(left))
    return change, change


def probability(before: Sequence[float], after: Sequence[float]) -> float:
    """Two-sided permutation test of the difference of means: how often chance alone does as much."""
    import numpy as np
    from scipy.stats import permutation_test

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = permutation_test(
            (np.asarray(before, float), np.asarray(after, float)),
            lambda a, b, axis=-1: np.mean(b, axis=axis) - np.mean(a, axis=axis),
            vectorized=True,
            n_resamples=RESAMPLES,
            random_state=np.random.default_rng(1),
        )
    return float(result.pvalue)
