# SPDX-License-Identifier: Apache-2.0
"""One row of a comparison: what became of a phase or an item between two sides."""

from __future__ import annotations

import bisect
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from vmtailor.analysis.statistics import modes
from vmtailor.analysis.statistics.significance import Difference, Thresholds, can_decide, shift
from vmtailor.analysis.statistics.significance import compare as judge
from vmtailor.model.boots.comparison import Row, RowMode, RowVerdict
from vmtailor.model.change import Verdict

#: A difference below a millisecond or a twentieth is of no interest, of items and of phases.
THRESHOLDS = Thresholds(relative=0.05, absolute=1000.0)
#: An item that a side has in no more than this share of its boots comes and goes: its durations say little.
SELDOM = 0.5

Key = tuple[str, str, int]

EXACT = {Verdict.BETTER: RowVerdict.FASTER, Verdict.WORSE: RowVerdict.SLOWER, Verdict.SAME: RowVerdict.SAME}


@dataclass(frozen=True)
class Item:
    """An item of one boot."""

    duration_us: int
    start_us: int | None
    path: str


def row(key: Key, left: Sequence[float], right: Sequence[float], of: tuple[int, int], thresholds: Thresholds) -> Row:
    """The row of one item, whose values of each side are given; `of` is how many boots each side has. Raises ValueError
    without any value."""
    boots = (len(left), len(right))
    if not left or not right:
        count, all_of = (boots[1], of[1]) if not left else (boots[0], of[0])
        verdict = RowVerdict.NEW if not left else RowVerdict.GONE
        us = statistics.median(left or right)
        return Row(
            *key,
            us if left else None,
            us if right else None,
            us if not left else -us,
            None,
            None,
            None,
            verdict if count >= all_of else RowVerdict.PARTLY,
            boots=boots,
            of=of,
        )
    found: Difference = judge(left, right, thresholds)
    low, high = found.low, found.high
    if low is not None and found.verdict is Verdict.SAME:
        _, low, high = shift(left, right)
    verdict, direction = _verdict(found, (low, high), boots, thresholds)
    if any(count <= SELDOM * whole for count, whole in zip(boots, of, strict=True)):
        verdict, direction = RowVerdict.PARTLY, ""
    return Row(
        *key, found.before, found.after, found.change, low, high, found.p, verdict, direction, False, boots, of=of
    )


def _verdict(
    found: Difference, interval: tuple[float | None, float | None], boots: tuple[int, int], thresholds: Thresholds
) -> tuple[RowVerdict, str]:
    """The verdict, and which way it leans or is."""
    low, high = interval
    leaning = RowVerdict.FASTER.value if found.change < 0 else RowVerdict.SLOWER.value
    small = abs(found.change) < thresholds.least(found.before)
    if low is None or high is None:
        if small:
            return (RowVerdict.BELOW if found.change else RowVerdict.SAME), ""
        return RowVerdict.UNDECIDED, leaning
    if low == high == 0:
        return RowVerdict.SAME, ""
    clear = (low > 0 or high < 0) and can_decide(*boots)
    if (clear and small) or found.verdict is Verdict.SAME:
        return RowVerdict.BELOW, leaning if clear else ""
    if found.verdict is Verdict.UNDECIDED:
        return RowVerdict.UNDECIDED, leaning
    return EXACT[found.verdict], ""


def with_modes(found: Row, left: Sequence[float], right: Sequence[float]) -> Row:
    """The row with the two groups that the boots of a side fall into, where they do."""
    groups = [modes.find(values) for values in (left, right)]
    before, after = (
        tuple(RowMode(mode.median, mode.count) for mode in found) if len(found) == 2 else () for found in groups
    )
    return msgspec.structs.replace(found, before_modes=before, after_modes=after) if before or after else found


def usual_path(items: Sequence[Item]) -> str:
    """The path that most boots have it on; "" where there is none."""
    return Counter(item.path for item in items).most_common(1)[0][0] if items else ""


def moved(left: Mapping[Key, int], right: Mapping[Key, int]) -> set[Key]:
    """Items of both sides that are not in the longest run of items in the same order: what was taken out and put
    elsewhere. Given is when each began, in one boot of each side: only within a boot is there an order."""
    known = sorted(
        ((key, at, right[key]) for key, at in left.items() if key in right and key[0] in ("initcall", "unit")),
        key=lambda entry: (entry[1], entry[2]),
    )
    tails: list[int] = []
    tail_index: list[int] = []
    back: list[int] = []
    for n, (_, _, b) in enumerate(known):
        at = bisect.bisect_right(tails, b)
        back.append(tail_index[at - 1] if at else -1)
        if at == len(tails):
            tails.append(b)
            tail_index.append(n)
        else:
            tails[at], tail_index[at] = b, n
    kept: set[int] = set()
    n = tail_index[-1] if tail_index else -1
    while n >= 0:
        kept.add(n)
        n = back[n]
    return {key for n, (key, _, _) in enumerate(known) if n not in kept}
