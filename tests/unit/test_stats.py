# SPDX-License-Identifier: Apache-2.0
"""Whether a difference is real: one rule for what varies, one for what hardly does."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from vmtailor.analysis.statistics import boot_statistics, significance
from vmtailor.model.change import Verdict

SIDE = st.lists(st.floats(1, 1000, allow_nan=False), min_size=4, max_size=7, unique=True)


@settings(max_examples=60)
@example([5.0, 6.0, 7.0, 8.0], [1.0, 2.0, 3.0, 4.0, 9.0, 1.5, 1.25])
@given(SIDE, SIDE)
def test_interval_and_test_agree(before: list[float], after: list[float]) -> None:
    if len({*before, *after}) < len(before) + len(after):
        return  # with ties the test is the more cautious
    _, low, high = significance.shift(before, after)
    away = low > 0 or high < 0
    assert away == (significance.probability(before, after) <= 0.05 + 1e-9)


@pytest.mark.parametrize(("before", "after"), [(3, 4), (4, 4), (5, 5), (2, 8), (6, 3), (3, 3)])
def test_the_interval_leaves_out_what_all_orders_say(before: int, after: int) -> None:
    larger: Counter[int] = Counter()
    for places in itertools.combinations(range(before + after), before):
        others = [place for place in range(before + after) if place not in places]
        larger[sum(1 for a in places for b in others if a > b)] += 1
    orders = sum(larger.values())
    # So many differences beyond a shift are too few: with one more, the shift is not rejected.
    few = [n for n in range(before * after + 1) if sum(larger[k] for k in range(n + 1)) <= 0.025 * orders]
    last = max(1, len(few))
    values = [float(n) for n in range(before)], [100.0 * n for n in range(1, after + 1)]
    differences = sorted(y - x for x in values[0] for y in values[1])
    assert significance.shift(*values)[1:] == (differences[last - 1], differences[-last])


@given(SIDE, SIDE)
def test_the_interval_of_many_values_is_found_without_sorting_all_differences(
    before: list[float], after: list[float]
) -> None:
    sides = [[value * scale for scale in (1.0, 1.5, 2.0) for value in side] for side in (before, after)]
    with pytest.MonkeyPatch.context() as patched:
        sorted_all = significance.shift(*sides)
        patched.setattr(significance, "_MANY_PAIRS", 0)
        assert significance.shift(*sides) == sorted_all


def test_three_values_a_side_never_decide() -> None:
    assert not significance.can_decide(3, 3) and significance.can_decide(4, 4) and significance.can_decide(3, 5)
    assert significance.least_values() == 4
    assert significance.compare([1.0, 1.1, 1.2], [9.0, 9.1, 9.2]).verdict is Verdict.UNDECIDED
    assert significance.compare([1.0, 1.1, 1.2, 1.3], [9.0, 9.1, 9.2, 9.3]).verdict is Verdict.WORSE


def test_equal_values_on_either_side_decide() -> None:
    found = significance.compare([1.0] * 5, [2.0] * 5)
    assert (found.change, found.low, found.high, found.verdict) == (1.0, 1.0, 1.0, Verdict.WORSE)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([1000.0], [998.9], Verdict.BETTER),
        ([1000.0], [999.1], Verdict.SAME),
        ([1000.0, 1002.0], [998.5], Verdict.BETTER),
        ([1000.0, 1002.0], [999.5], Verdict.SAME),
        ([1000.0, 1100.0], [950.0], Verdict.UNDECIDED),
        ([0.0], [0.0], Verdict.SAME),
    ],
)
def test_counts_have_one_rule(before: list[float], after: list[float], expected: Verdict) -> None:
    assert significance.exact(before, after).verdict is expected
    assert boot_statistics.judge(before, after, exact=True) is expected
