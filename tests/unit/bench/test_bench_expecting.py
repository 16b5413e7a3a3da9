# SPDX-License-Identifier: Apache-2.0
"""How long a run is expected to take, and what is left out of it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.analysis.bench.clock import CLOCK
from vmtailor.analysis.bench.expecting import Expected, lasting, plan_lines, seconds_of, within
from vmtailor.analysis.bench.plan import BenchTest, PlannedTrial, plan
from vmtailor.model.bench.results import BenchTrial, SuiteName

RUNTIMES = ("native", "docker")
CHEAP = BenchTest(SuiteName.STARTUP, "report", cost=2.0)
MIDDLE = BenchTest(SuiteName.STARTUP, "http", cost=5.0)
DEAR = BenchTest(SuiteName.STARTUP, "serial", 4, cost=20.0)
OTHER = BenchTest(SuiteName.MEMORY, "least", cost=100.0)
COUNTED = BenchTest(SuiteName.STARTUP, "boot", 1, CLOCK, 15.0, False)


def planned(*tests: BenchTest) -> list[PlannedTrial]:
    return plan(tests, RUNTIMES, 4, 1)  # four samples and a warm-up of each in two runtimes: ten trials a test


def took(one: PlannedTrial, seconds: float) -> BenchTrial:
    test = one.test
    return BenchTrial(test.suite, test.test, one.runtime, test.count, test.variant, one.block, 0.0, seconds)


def left_out(tests: Sequence[BenchTest], most_s: float) -> list[str]:
    kept, out = within(planned(*tests), most_s)
    assert {one.test for one in kept} | set(out) == set(tests) and not {one.test for one in kept} & set(out)
    return [test.test for test in out]


def test_what_was_not_run_costs_what_it_says() -> None:
    trials = planned(CHEAP, MIDDLE)
    assert Expected(trials).seconds == seconds_of(trials) == 70.0


def test_what_ran_is_expected_to_take_what_it_took_and_the_rest_as_much_longer() -> None:
    trials = planned(CHEAP, MIDDLE)
    expected = Expected(trials)
    for one in trials[:9]:
        expected.done(took(one, 4.0))
    # One of the cheap ones is left, which take 4 s each; of the others it is believed by then: (60 + 36) / (60 + 18).
    assert expected.seconds == pytest.approx(4.0 + 50.0 * 96 / 78)
    for one in trials[9:]:
        expected.done(took(one, 4.0))
    assert expected.seconds == 0.0
    expected.done(took(trials[0], 4.0))
    assert expected.seconds == 0.0


def test_an_earlier_run_is_learned_from_as_far_as_it_is_of_the_plan() -> None:
    trials = planned(CHEAP)
    elsewhere = took(PlannedTrial(OTHER, "native", 1), 1000.0)
    assert Expected(trials, [elsewhere]).seconds == 20.0
    assert Expected(trials, [took(trials[0], 3.0)]).seconds == 27.0


def test_nothing_is_left_out_of_what_fits() -> None:
    assert left_out((CHEAP, MIDDLE, DEAR), 270.0) == []


def test_the_cheapest_that_is_enough_is_left_out_in_whole() -> None:
    assert left_out((CHEAP, MIDDLE, DEAR), 260.0) == ["report"]
    assert left_out((CHEAP, MIDDLE, DEAR), 240.0) == ["http"]
    assert left_out((CHEAP, MIDDLE, DEAR), 100.0) == ["serial"]
    assert left_out((CHEAP, MIDDLE, DEAR), 30.0) == ["serial", "http"]


def test_one_of_each_suite_stays_and_one_that_is_counted() -> None:
    assert left_out((CHEAP, OTHER, COUNTED), 1.0) == []
    assert left_out((CHEAP, MIDDLE, OTHER, COUNTED), 1.0) == ["http"]


@given(st.floats(0.1, 400.0))
def test_what_is_kept_fits_or_could_not_be_less(most_s: float) -> None:
    kept, _ = within(planned(CHEAP, MIDDLE, DEAR, OTHER), most_s)
    assert {one.test.suite for one in kept} == {SuiteName.STARTUP, SuiteName.MEMORY}
    assert seconds_of(kept) <= most_s or len({one.test for one in kept}) == 2


def test_the_plan_counts_cells_and_samples_without_warm_ups() -> None:
    trials = planned(CHEAP, MIDDLE, OTHER)
    lines = plan_lines(trials, 3, 1000.0)
    assert lines == [
        "plan: 6 cells (3 tests, 2 runtimes), 30 trials, 3 of them done: about 17 min",
        "  startup: 4 cells, 16 samples, about 70 s",
        "  memory: 2 cells, 8 samples, about 17 min",
    ]


def test_times_are_told_as_far_as_they_are_known() -> None:
    said = [lasting(seconds) for seconds in (0.0, 59.6, 100.0, 80 * 60.0, 3 * 3600.0, 60 * 3600.0)]
    assert said == ["1 s", "60 s", "2 min", "80 min", "3.0 h", "2.5 days"]
