# SPDX-License-Identifier: Apache-2.0
"""How long a run will take: before it begins, from what its tests cost; while it runs, from what they took, runtime by
runtime. And what is left out of it so that it ends in time. Pure."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from vmtailor.bench.analysis.bench_clock import is_counted
from vmtailor.bench.analysis.trial_plan import BenchTest, PlannedTrial
from vmtailor.bench.model.results import BenchTrial, TestKey

#: How what is left out so that a run ends in time is named.
LEFT_OUT = "left out, to end within"
#: So many seconds of what was told before weigh against what trials took: the first few say little of the rest.
_TRUSTED_S = 60.0


class Expected:
    """What trials are expected to take. It learns from every one that is done: how long each runtime takes for each
    test, and how much longer than its tests cost a runtime takes for a suite. That it takes longer for one suite is
    expected of the others, too; that it takes less is not, since most tests last as long as they are told to."""

    def __init__(self, planned: Sequence[PlannedTrial], done: Iterable[BenchTrial] = ()) -> None:
        self._costs = {one.test.key: one.test.cost for one in planned}
        self._left = {one.key: one for one in planned}
        self._took: dict[TestKey, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self._cost_s: dict[tuple[str, str], float] = defaultdict(float)  # by suite and runtime
        self._real_s: dict[tuple[str, str], float] = defaultdict(float)
        for trial in done:
            self.done(trial)

    def done(self, trial: BenchTrial) -> None:
        """One of those planned is done; another one is passed over."""
        if self._left.pop(trial.key, None) is None:
            return
        self._took[trial.of_test][trial.runtime].append(trial.seconds)
        self._cost_s[trial.suite, trial.runtime] += self._costs[trial.of_test]
        self._real_s[trial.suite, trial.runtime] += trial.seconds

    def of(self, one: PlannedTrial) -> float:
        """Seconds of one trial: what this test took in this runtime; otherwise what it took in the others, as much
        longer as this runtime takes for the rest; otherwise what it costs, as much longer."""
        took = self._took.get(one.test.key, {})
        if own := took.get(one.runtime):
            return statistics.median(own)
        suite = one.test.suite
        slower = self._slower(suite, one.runtime)
        if took:
            return slower * statistics.median(
                statistics.median(values) / self._slower(suite, name) for name, values in took.items()
            )
        return slower * one.test.cost

    def _slower(self, suite: str, runtime: str) -> float:
        """How much longer than its tests cost a runtime takes for a suite: as for all, at least as long as they cost,
        until it has been seen for long enough."""
        told = max(1.0, self._slower_at_all(runtime))
        return (self._real_s[suite, runtime] + told * _TRUSTED_S) / (self._cost_s[suite, runtime] + _TRUSTED_S)

    def _slower_at_all(self, runtime: str) -> float:
        """The same for all suites: as all runtimes do until it has been seen for long enough."""
        host = (sum(self._real_s.values()) + _TRUSTED_S) / (sum(self._cost_s.values()) + _TRUSTED_S)
        real, cost = (sum(s for (_, name), s in by.items() if name == runtime) for by in (self._real_s, self._cost_s))
        return (real + host * _TRUSTED_S) / (cost + _TRUSTED_S)

    @property
    def seconds(self) -> float:
        """Until the last one is done."""
        return sum(self.of(one) for one in self._left.values())


def cost_of(one: PlannedTrial) -> float:
    """What a trial costs before any of them ran."""
    return one.test.cost


def seconds_of(planned: Iterable[PlannedTrial]) -> float:
    """What trials cost, in seconds, before any of them ran."""
    return sum(map(cost_of, planned))


def within(
    planned: Sequence[PlannedTrial],
    most_s: float,
    seconds: Callable[[PlannedTrial], float] = cost_of,
    begun: Collection[BenchTest] = (),
) -> tuple[list[PlannedTrial], list[BenchTest]]:
    """The trials that fit into so many seconds, and the tests that are left out for it, in whole: the cheapest one that
    is enough, otherwise the dearest. `begun`: tests of which trials were done; they go on. Of every suite one stays,
    and one of those that count, so it may not be enough."""
    cost: dict[BenchTest, float] = defaultdict(float)
    for one in planned:
        cost[one.test] += seconds(one)
    out: list[BenchTest] = []
    while (over := sum(cost.values()) - most_s) > 0:
        kinds = defaultdict(set)
        for test in (*cost, *begun):
            kinds[test.suite, is_counted(test.variant)].add(test)
        spare = sorted(
            (test for test in cost if test not in begun and len(kinds[test.suite, is_counted(test.variant)]) > 1),
            key=lambda test: cost[test],
        )
        if not spare:
            break
        chosen = next((test for test in spare if cost[test] >= over), spare[-1])
        out.append(chosen)
        del cost[chosen]
    return [one for one in planned if one.test in cost], out


@dataclass(frozen=True)
class CellOut:
    """A test in one runtime that is not gone on with. `trials`: how many more there would have been."""

    test: BenchTest
    runtime: str
    trials: int


def cells_within(
    planned: Sequence[PlannedTrial], most_s: float, seconds: Callable[[PlannedTrial], float]
) -> tuple[list[PlannedTrial], list[CellOut]]:
    """The same, cell by cell: where tests cannot be left out in whole any more, the cells that would take longest are,
    until the rest fits. Nothing need stay."""
    cells: dict[tuple[BenchTest, str], list[PlannedTrial]] = defaultdict(list)
    for one in planned:
        cells[one.test, one.runtime].append(one)
    cost = {cell: sum(map(seconds, trials)) for cell, trials in cells.items()}
    out = []
    while cost and sum(cost.values()) > most_s:
        dearest = max(cost, key=lambda cell: cost[cell])
        out.append(CellOut(*dearest, len(cells[dearest])))
        del cost[dearest]
    return [one for one in planned if (one.test, one.runtime) in cost], out


def plan_lines(planned: Sequence[PlannedTrial], there: int, left_s: float) -> list[str]:
    """What a run will do, in lines: all of it, suite by suite. `there`: trials that an earlier run has done."""
    cells = {(one.test, one.runtime) for one in planned}
    ways = {one.runtime for one in planned}
    been = f", {there:,} of them done" if there else ""
    lines = [
        f"plan: {len(cells):,} cells ({_several(len({one.test for one in planned}), 'test')}, "
        f"{_several(len(ways), 'runtime')}), {len(planned):,} trials{been}: about {lasting(left_s)}"
    ]
    for suite in dict.fromkeys(one.test.suite for one in planned):
        here = [one for one in planned if one.test.suite == suite]
        samples = sum(1 for one in here if one.block)
        lines.append(
            f"  {suite}: {len({(one.test, one.runtime) for one in here}):,} cells, {samples:,} samples, "
            f"about {lasting(seconds_of(here))}"
        )
    return lines


def _several(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def lasting(seconds: float) -> str:
    """A time to wait, as far as it can be told: seconds, minutes, hours, days."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 90 * 60:
        return f"{round(seconds / 60)} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.1f} days"
