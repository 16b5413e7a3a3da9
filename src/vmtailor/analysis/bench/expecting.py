# SPDX-License-Identifier: Apache-2.0
"""How long a run will take: before it begins, from what its tests cost; while it runs, from what they took. And what is
left out of it so that it ends in time. Pure."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence

from vmtailor.analysis.bench.clock import CLOCK
from vmtailor.analysis.bench.plan import BenchTest, PlannedTrial
from vmtailor.model.bench.results import BenchTrial

#: How a test is named that is left out so that a run ends in time.
LEFT_OUT = "left out, to end within"
#: So many seconds of what was told before weigh against what trials took: the first few say little of the rest.
_TRUSTED_S = 60.0

_Key = tuple[str, str, int, str]


def _of(test: BenchTest) -> _Key:
    return test.suite, test.test, test.count, test.variant


class Expected:
    """What is still to be waited for. It learns from every trial that is done."""

    def __init__(self, planned: Sequence[PlannedTrial], done: Iterable[BenchTrial] = ()) -> None:
        self._costs = {_of(one.test): one.test.cost for one in planned}
        self._left: dict[_Key, int] = defaultdict(int)
        self._took: dict[_Key, list[float]] = defaultdict(list)
        self._cost_s = self._real_s = _TRUSTED_S
        for one in planned:
            self._left[_of(one.test)] += 1
        for trial in done:
            self.done(trial)

    def done(self, trial: BenchTrial) -> None:
        """One of those planned is done; another one is passed over."""
        key = (trial.suite, trial.test, trial.count, trial.variant)
        if not self._left.get(key):
            return
        self._left[key] -= 1
        self._took[key].append(trial.seconds)
        self._cost_s += self._costs[key]
        self._real_s += trial.seconds

    @property
    def seconds(self) -> float:
        """Until the last one is done: a test that ran takes what it took, another one what it costs, times how much
        longer than they cost the others took."""
        slower = self._real_s / self._cost_s
        return sum(
            count * (statistics.median(took) if (took := self._took.get(key)) else slower * self._costs[key])
            for key, count in self._left.items()
        )


def seconds_of(planned: Iterable[PlannedTrial]) -> float:
    """What trials cost, in seconds, before any of them ran."""
    return sum(one.test.cost for one in planned)


def within(planned: Sequence[PlannedTrial], most_s: float) -> tuple[list[PlannedTrial], list[BenchTest]]:
    """The trials that fit into so many seconds, and the tests that are left out for it, in whole: the cheapest one that
    is enough, otherwise the dearest. Of every suite one stays, and one of those that count, so it may not be enough."""
    cost: dict[BenchTest, float] = defaultdict(float)
    for one in planned:
        cost[one.test] += one.test.cost
    out: list[BenchTest] = []
    while (over := sum(cost.values()) - most_s) > 0:
        kinds = defaultdict(list)
        for test in cost:
            kinds[test.suite, test.variant == CLOCK].append(test)
        spare = sorted((test for kind in kinds.values() if len(kind) > 1 for test in kind), key=lambda test: cost[test])
        if not spare:
            break
        chosen = next((test for test in spare if cost[test] >= over), spare[-1])
        out.append(chosen)
        del cost[chosen]
    return [one for one in planned if one.test in cost], out


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
