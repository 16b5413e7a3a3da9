# SPDX-License-Identifier: Apache-2.0
"""Test whether a difference between two sets of repeated measurements is real.

Durations vary. Their change is the median of all differences between a value of one side and one of the other (Hodges
and Lehmann). Its interval holds all shifts that a permutation test of ranks does not reject; its probability is from
this test, too. So test and interval never disagree. The change must also be worth something, relatively and absolutely.
Counts (instructions, bytes, virtual time) hardly vary: `exact` has the one rule for them. A difference that cannot be
told is `undecided`, never `same`."""

from __future__ import annotations

import functools
import itertools
import math
import statistics
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from vmtailor.model.change import Verdict

CONFIDENCE = 0.95
RESAMPLES = 2000
#: With more pairs of values than this, the distribution of ranks is taken for normal.
EXACT_PAIRS = 900
#: With more, sorting all differences takes longer than loading numpy.
_MANY_PAIRS = 100_000
#: Spread of σ over the mean from which a side counts as unstable.
UNSTABLE = 0.10
#: Counts of two runs of one machine agree so well, and a difference below it means nothing.
EXACT_SHARE = 0.001
#: If counts of one side differ by more than this share, an agreement of both sides tells nothing.
LOOSE_SHARE = 10 * EXACT_SHARE


@dataclass(frozen=True)
class Thresholds:
    """A difference below either is of no interest. `absolute` is in the unit of the values. `alike`: sides between
    which no difference was found are the same where one of this size, in the same unit, can be ruled out; 0: where one
    that is of interest can."""

    relative: float = 0.05
    absolute: float = 0.0
    alike: float = 0.0

    def least(self, before: float) -> float:
        return max(self.relative * abs(before), self.absolute)

    def ruled_out(self, before: float) -> float:
        return max(self.least(before), self.alike)


@dataclass(frozen=True)
class Difference:
    """The difference of two sides: their medians, the change (after less before) with its interval, and the verdict.

    `low`, `high` and `p` are None when one side has a single value: then there is no spread to judge by. With fewer
    values than `can_decide` asks for, `low` and `high` are the extremes."""

    before: float
    after: float
    change: float
    low: float | None
    high: float | None
    p: float | None
    verdict: Verdict


def unstable(values: Sequence[float]) -> bool:
    """Return whether the standard deviation is a tenth of the mean or more."""
    if len(values) < 2:
        return False
    mean = statistics.fmean(values)
    return mean != 0 and statistics.stdev(values) >= UNSTABLE * abs(mean)


def compare(before: Sequence[float], after: Sequence[float], thresholds: Thresholds = Thresholds()) -> Difference:
    """Judge two sides, smaller being better. Raises ValueError for an empty side."""
    if not before or not after:
        raise ValueError("a side has no values")
    left, right = statistics.median(before), statistics.median(after)
    if len(before) < 2 or len(after) < 2:
        return Difference(
            before=left, after=right, change=right - left, low=None, high=None, p=None, verdict=Verdict.UNDECIDED
        )
    least = thresholds.least(left)
    low, high = min(after) - max(before), max(after) - min(before)
    if -least <= low and high <= least:
        # Even the extremes are no further apart: no need to rank, of which a boot has thousands of rows.
        return Difference(
            before=left, after=right, change=right - left, low=low, high=high, p=None, verdict=Verdict.SAME
        )
    change, low, high = shift(before, after)
    if -least <= low and high <= least:
        return Difference(before=left, after=right, change=change, low=low, high=high, p=None, verdict=Verdict.SAME)
    if abs(change) >= least and not low <= 0 <= high:
        p = probability(before, after)
        found = Verdict.BETTER if change < 0 else Verdict.WORSE
        verdict = found if p <= 1 - CONFIDENCE else Verdict.UNDECIDED
        return Difference(before=left, after=right, change=change, low=low, high=high, p=p, verdict=verdict)
    most = thresholds.ruled_out(left)
    verdict = Verdict.SAME if -most <= low and high <= most else Verdict.UNDECIDED
    return Difference(before=left, after=right, change=change, low=low, high=high, p=None, verdict=verdict)


def exact(before: Sequence[float], after: Sequence[float], share: float = EXACT_SHARE) -> Difference:
    """Judge counts that hardly vary, smaller being better: one value a side is enough. A difference is real when it is
    larger than this share, and larger than the spread within either side. Raises ValueError for an empty side."""
    if not before or not after:
        raise ValueError("a side has no values")
    left, right = statistics.median(before), statistics.median(after)
    change, scale = right - left, abs(left) or 1.0
    low, high = min(after) - max(before), max(after) - min(before)
    slack = max(share * scale, spread(before), spread(after))
    if abs(change) > slack:
        verdict = Verdict.BETTER if change < 0 else Verdict.WORSE
    else:
        verdict = Verdict.SAME if slack <= LOOSE_SHARE * scale else Verdict.UNDECIDED
    return Difference(before=left, after=right, change=change, low=low, high=high, p=None, verdict=verdict)


def spread(values: Sequence[float]) -> float:
    """Return how far apart the values are."""
    return max(values) - min(values)


@functools.cache
def can_decide(before: int, after: int) -> bool:
    """Return whether so many values a side can ever tell a difference of durations from chance, even if the sides have
    nothing in common."""
    if min(before, after) < 2:
        return False
    return probability(range(before), range(10 * before, 10 * before + after)) <= 1 - CONFIDENCE


@functools.cache
def least_values() -> int:
    """Return the smallest number of values a side with which `can_decide`."""
    return next(count for count in range(2, 100) if can_decide(count, count))


def shift(before: Sequence[float], after: Sequence[float]) -> tuple[float, float, float]:
    """Return the change and its 95 % interval: the median of all differences after - before, and the shifts that a test
    of ranks does not reject. The test counts the differences beyond a shift, and rejects where there are fewer than
    some number. So the interval ends at the difference with that number, from either end. With too few values to reject
    anything, it ends at the extremes."""
    last = max(1, _rejected(len(before), len(after)))
    if len(before) * len(after) > _MANY_PAIRS:
        return _shift_of_many(before, after, last)
    differences = sorted(y - x for x in before for y in after)
    return statistics.median(differences), differences[last - 1], differences[-last]


def _shift_of_many(before: Sequence[float], after: Sequence[float], last: int) -> tuple[float, float, float]:
    """Return what `shift` returns without sorting millions of differences: it selects only the ranks that it needs."""
    import numpy as np

    differences = np.subtract.outer(np.asarray(after, float), np.asarray(before, float)).ravel()
    pairs = len(differences)
    low, left, right, high = last - 1, (pairs - 1) // 2, pairs // 2, pairs - last
    differences.partition(sorted({low, left, right, high}))
    middle = (differences[left] + differences[right]) / 2
    return float(middle), float(differences[low]), float(differences[high])


@functools.cache
def _rejected(before: int, after: int) -> int:
    """Return how many counts of differences beyond a shift, from 0 on, reject that shift at either end; 0 with too few
    values."""
    tail = (1 - CONFIDENCE) / 2
    pairs = before * after
    if pairs > EXACT_PAIRS:
        mean, deviation = pairs / 2, math.sqrt(pairs * (before + after + 1) / 12)
        return max(0, math.floor(mean - statistics.NormalDist().inv_cdf(1 - tail) * deviation))
    # Number of orders of all values with this many pairs in which the one of `before` is larger: counted by placing
    # the values of `before` one after the other (Mann and Whitney).
    ways = [[1] + [0] * pairs for _ in range(after + 1)]
    for _ in range(before):
        for right in range(1, after + 1):
            ways[right] = [ways[right - 1][n] + (ways[right][n - right] if n >= right else 0) for n in range(pairs + 1)]
    orders = math.comb(before + after, before)
    below = itertools.accumulate(ways[after])
    return sum(1 for count in itertools.takewhile(lambda count: count <= tail * orders, below))


def probability(before: Sequence[float], after: Sequence[float]) -> float:
    """Return how often chance alone gives such a difference of mean ranks, by a two-sided permutation test."""
    import numpy as np
    from scipy.stats import permutation_test, rankdata

    ranks = rankdata([*before, *after])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = permutation_test(
            (ranks[: len(before)], ranks[len(before) :]),
            lambda a, b, axis=-1: np.mean(b, axis=axis) - np.mean(a, axis=axis),
            vectorized=True,
            n_resamples=RESAMPLES,
            random_state=np.random.default_rng(1),
        )
    return float(result.pvalue)
