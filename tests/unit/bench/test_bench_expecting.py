# SPDX-License-Identifier: Apache-2.0
"""How long a run is expected to take, and what is left out of it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.bench.analysis.benchmarks import BenchTest
from vmtailor.bench.analysis.schedule import (
    Expected,
    PlannedTrial,
    Schedule,
    cells_within,
    cost_of,
    lasting,
    plan,
    plan_lines,
    seconds_of,
    within,
)
from vmtailor.bench.model.results import CLOCK, BenchTrial, SuiteName

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
    # One of the cheap ones is left, which take 4 s each; of the others it is believed by then: (60 + 36) / (60 + 18) of
    # all, and so much more of either runtime, for what it did itself, at all and in this suite: five trials of one,
    # four of the other.
    host = 96 / 78
    mine = {trials[n].runtime: sum(one.runtime == trials[n].runtime for one in trials[:9]) for n in range(2)}
    told = {n: (4.0 * n + 60 * host) / (2.0 * n + 60) for n in mine.values()}
    slower = [(4.0 * n + 60 * told[n]) / (2.0 * n + 60) for n in mine.values()]
    assert sorted(mine.values()) == [4, 5] and expected.seconds == pytest.approx(4.0 + 25.0 * sum(slower))
    for one in trials[9:]:
        expected.done(took(one, 4.0))
    assert expected.seconds == 0.0
    expected.done(took(trials[0], 4.0))
    assert expected.seconds == 0.0


def test_a_runtime_that_is_slow_is_expected_to_be_slow_at_what_it_has_not_done() -> None:
    trials = planned(CHEAP, MIDDLE)
    expected = Expected(trials)
    for one in trials[:10]:
        expected.done(took(one, 60.0 if one.runtime == "docker" else 2.0))
    found = {name: expected.of(next(o for o in trials[10:] if o.runtime == name)) for name in RUNTIMES}
    assert found["docker"] > 4 * MIDDLE.cost and found["docker"] > 2 * found["native"]
    # What the others took for this very test says more than what it costs.
    (first,) = [one for one in trials[10:] if one.runtime == "native" and one.block == 0]
    expected.done(took(first, 50.0))
    later = next(one for one in trials[10:] if one.runtime == "docker")
    assert expected.of(later) > 50.0


def test_an_earlier_run_is_learned_from_as_far_as_it_is_of_the_plan() -> None:
    trials = planned(CHEAP)
    elsewhere = took(PlannedTrial(OTHER, "native", 1), 1000.0)
    assert Expected(trials, [elsewhere]).seconds == 20.0
    host = 63 / 62  # four more of one runtime at 3 s; five of the other, which was not seen, as much as all are slower
    told = (3 + 60 * host) / 62
    assert Expected(trials, [took(trials[0], 3.0)]).seconds == pytest.approx(
        12.0 + 15.0 * host / ((3 + 60 * told) / 62)
    )


def test_less_than_it_costs_is_learned_for_a_suite_alone_and_more_for_all() -> None:
    trials = planned(CHEAP, MIDDLE, OTHER)

    def after(seconds: float) -> dict[str, float]:
        expected = Expected(trials, [took(one, seconds) for one in trials[:10]])
        return {one.test.test: expected.of(one) for one in trials}

    assert after(0.01)["http"] < MIDDLE.cost and after(0.01)["least"] == OTHER.cost
    assert after(2.0) == {"report": 2.0, "http": MIDDLE.cost, "least": OTHER.cost}
    assert after(10.0)["http"] > MIDDLE.cost and after(10.0)["least"] > 1.2 * OTHER.cost


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


@pytest.mark.lengthy
@given(st.floats(0.1, 400.0))
def test_what_is_kept_fits_or_could_not_be_less(most_s: float) -> None:
    kept, _ = within(planned(CHEAP, MIDDLE, DEAR, OTHER), most_s)
    assert {one.test.suite for one in kept} == {SuiteName.STARTUP, SuiteName.MEMORY}
    assert seconds_of(kept) <= most_s or len({one.test for one in kept}) == 2


def test_what_has_begun_goes_on_and_stands_for_its_suite() -> None:
    kept, out = within(planned(CHEAP, MIDDLE, OTHER), 40.0, cost_of, {CHEAP})
    assert {one.test for one in kept} == {CHEAP, OTHER} and out == [MIDDLE]


def test_cells_are_left_out_dearest_first_until_the_rest_fits() -> None:
    trials = planned(CHEAP, OTHER)
    kept, out = cells_within(trials, 600.0, cost_of)
    assert [(one.test.test, one.trials) for one in out] == [("least", 5)] and seconds_of(kept) <= 600.0
    assert cells_within(trials, -1.0, cost_of)[0] == [] and len(cells_within(trials, -1.0, cost_of)[1]) == 4
    assert cells_within(trials, 1e6, cost_of) == (trials, [])


class Clock:
    """Tells what it is told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def run_within(
    most_s: float, factors: dict[str, float], *tests: BenchTest
) -> tuple[Clock, list[PlannedTrial], list[str]]:
    """A run on a host on which a trial takes so many times what it costs, by runtime."""
    clock, did, said = Clock(), list[PlannedTrial](), list[str]()
    schedule = Schedule(planned(*tests), (), most_s, most_s, clock)
    said += schedule.fit(cells=False)
    while True:
        said += schedule.fit()
        one = schedule.next()
        if one is None:
            assert set(schedule.left_out()) <= set(said)  # nothing is left out unsaid
            return clock, did, schedule.left_out()
        seconds = one.test.cost * factors[one.runtime]
        clock.now += seconds
        did.append(one)
        schedule.expected.done(took(one, seconds))


def test_a_run_ends_in_time_on_a_host_that_is_as_slow_as_it_may_be() -> None:
    clock, did, said = run_within(300.0, {"native": 1.0, "docker": 1.0}, CHEAP, MIDDLE, DEAR)
    assert not said and len(did) == 30 and clock.now == 270.0
    clock, did, said = run_within(300.0, {"native": 2.0, "docker": 5.0}, CHEAP, MIDDLE, DEAR)
    assert clock.now <= 300.0 + 5 * DEAR.cost  # but for the trial that runs when time is up
    assert said and all("left out, to end within" in row for row in said)
    assert {one.test for one in did} | {MIDDLE, DEAR} == {CHEAP, MIDDLE, DEAR}
    assert len(did) + sum(10 for row in said if "trials of it" not in row) <= 30  # those were not begun


@given(st.floats(0.2, 30.0), st.floats(0.2, 30.0), st.floats(50.0, 1500.0))
def test_no_run_is_longer_than_it_may_be_by_more_than_a_trial(native: float, docker: float, most_s: float) -> None:
    factors = {"native": native, "docker": docker}
    clock, did, _ = run_within(most_s, factors, CHEAP, MIDDLE, DEAR, OTHER)
    last = did[-1].test.cost * factors[did[-1].runtime] if did else 0.0
    assert clock.now <= most_s + last


def test_what_was_left_out_for_a_guess_comes_back_when_there_is_time_for_it() -> None:
    clock, did, out = run_within(200.0, {"native": 0.3, "docker": 0.3}, CHEAP, MIDDLE, DEAR)
    assert out == []  # though by what they cost they take 270 s
    assert {one.test for one in did} == {CHEAP, MIDDLE, DEAR} and len(did) == 30 and clock.now <= 200.0
    # What comes back does not break into a test that has begun.
    order = list(dict.fromkeys(one.test for one in did))
    assert [one.test for one in did] == [test for test in order for _ in range(10)]
    schedule = Schedule(planned(CHEAP, MIDDLE, DEAR), (), 200.0, 200.0, Clock())
    assert schedule.fit(cells=False) == schedule.left_out() and schedule.left_out()[0].startswith("startup: serial")
    assert schedule.fit(cells=False) == []  # said once


def test_while_trials_run_what_is_not_done_yet_is_not_told_to_be_left_out() -> None:
    clock = Clock()
    schedule = Schedule(planned(CHEAP, MIDDLE, DEAR), (), 70.0, 70.0, clock)
    assert schedule.fit() == [] and schedule.left_out()  # they may come back before it is their turn
    while (one := schedule.next()) is not None:
        clock.now += one.test.cost
        schedule.expected.done(took(one, one.test.cost))
        said = schedule.fit()
    assert said and said == schedule.left_out()


def test_what_an_earlier_run_did_is_not_paid_for_again() -> None:
    trials = planned(CHEAP, DEAR)
    there = [took(one, one.test.cost) for one in trials[:-1]]
    schedule = Schedule(trials, there, 60.0, 60.0, Clock())
    # Its runtime is begun anew, so that its cell is warmed up again.
    again = next(one for one in trials if one.test is DEAR and one.runtime == trials[-1].runtime and not one.block)
    assert schedule.fit(cells=False) == [] and [one.key for one in schedule.left] == [again.key, trials[-1].key]
    assert Schedule(trials, [took(one, 1.0) for one in trials], None, None, Clock()).left == []


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


def test_what_is_there_with_another_trial_is_kept_and_costs_nothing() -> None:
    trials = planned(CHEAP, DEAR)
    clock = Clock()
    schedule = Schedule(trials, (), 30.0, 30.0, clock)
    schedule.is_there = lambda one: one.test is DEAR
    clock.now = 31.0  # a boot took longer than there was time
    schedule.fit()
    assert [one.test for one in schedule.left] == [DEAR] * len(schedule.left) and schedule.left
    assert schedule.seconds == 0.0 and schedule.left_out()[0].startswith("startup: report")
