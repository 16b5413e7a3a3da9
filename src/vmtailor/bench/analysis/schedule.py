# SPDX-License-Identifier: Apache-2.0
"""The trials of a run: their order, in randomised balanced blocks, so that drift affects every runtime alike; their
expected length; and the tests that are left out so that a run ends in the time it was given. Pure."""

from __future__ import annotations

import random
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from vmtailor.bench.analysis.benchmarks import BenchTest
from vmtailor.bench.analysis.phrases import title_of
from vmtailor.bench.model.results import BenchTrial, TestKey, is_counted

#: Beginning of the note on cells left out so that a run ends in time.
LEFT_OUT = "left out, to end within"
#: Weight of the first estimate against measured trials, in seconds: the first few trials say little of the rest.
_TRUSTED_S = 60.0


@dataclass(frozen=True)
class PlannedTrial:
    """One trial of a test in a runtime. `block`: its repetition; 0 is the warm-up."""

    test: BenchTest
    runtime: str
    block: int

    @property
    def boot(self) -> tuple[str, int]:
        """Return what names the boot that a trial shares with others of its runtime and repetition."""
        return self.runtime, self.block

    @property
    def key(self) -> tuple[str, str, str, int, str, int]:
        test = self.test
        return test.suite, test.test, self.runtime, test.count, test.variant, self.block


def is_way(variant: str, asked: str) -> bool:
    """Return whether `asked` selects a variant: all of its words between commas must be among the variant's (`1 copy`
    selects `our set, 1 copy, all cores`). Empty selects every variant."""
    return not asked or set(asked.split(", ")) <= set(variant.split(", "))


def orders(runtimes: Sequence[str], repeat: int, seed: str) -> Iterator[tuple[str, ...]]:
    """Return the order of the runtimes in each of the repetitions: a random one, then its reverse (A B B A), then a new
    one. With an even number, every runtime is as often early as late."""
    chance = random.Random(seed)
    forward: tuple[str, ...] = ()
    for number in range(repeat):
        if number % 2 == 0:
            forward = tuple(chance.sample(list(runtimes), len(runtimes)))
            yield forward
        else:
            yield forward[::-1]


def plan(tests: Sequence[BenchTest], runtimes: Sequence[str], repeat: int, seed: int) -> list[PlannedTrial]:
    """Return all trials in their order: test by test, a warm-up of each runtime, then the blocks."""
    found = []
    for test in tests:
        name = f"{seed}/{test.suite}/{test.test}/{test.count}/{test.variant}"
        ways = [runtime for runtime in runtimes if test.only_in in ("", runtime)]
        found += [PlannedTrial(test, runtime, 0) for runtime in ways if test.warm_up]
        for number, order in enumerate(orders(ways, repeat, name), 1):
            found += [PlannedTrial(test, runtime, number) for runtime in order]
    return found


class Expected:
    """The expected length of trials, learned from those that are done: how long each runtime takes for each test, and
    how much slower than planned it is in each suite. Slowness in one suite is expected in the others, too. Speed is
    not, since most tests last for a set time."""

    def __init__(self, planned: Sequence[PlannedTrial], done: Iterable[BenchTrial] = ()) -> None:
        self._costs = {one.test.key: one.test.cost for one in planned}
        self._left = {one.key: one for one in planned}
        self._took: dict[TestKey, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self._cost_s: dict[tuple[str, str], float] = defaultdict(float)  # by suite and runtime
        self._real_s: dict[tuple[str, str], float] = defaultdict(float)
        for trial in done:
            self.done(trial)

    def done(self, trial: BenchTrial) -> None:
        """Learn from a trial that is done; one that was not planned is ignored."""
        if self._left.pop(trial.key, None) is None:
            return
        self._took[trial.of_test][trial.runtime].append(trial.seconds)
        self._cost_s[trial.suite, trial.runtime] += self._costs[trial.of_test]
        self._real_s[trial.suite, trial.runtime] += trial.seconds

    def of(self, one: PlannedTrial) -> float:
        """Return the expected seconds of a trial: what this test took in this runtime; or what it took in others,
        scaled by this runtime's slowness; or its planned cost, scaled likewise."""
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
        """Return how much longer than its tests cost a runtime takes for a suite: as for all, at least as long as they
        cost, until it has been seen for long enough."""
        told = max(1.0, self._slower_at_all(runtime))
        return (self._real_s[suite, runtime] + told * _TRUSTED_S) / (self._cost_s[suite, runtime] + _TRUSTED_S)

    def _slower_at_all(self, runtime: str) -> float:
        """Return how much longer a runtime takes for all suites: as all runtimes do until it has been seen for long
        enough."""
        host = (sum(self._real_s.values()) + _TRUSTED_S) / (sum(self._cost_s.values()) + _TRUSTED_S)
        real, cost = (sum(s for (_, name), s in by.items() if name == runtime) for by in (self._real_s, self._cost_s))
        return (real + host * _TRUSTED_S) / (cost + _TRUSTED_S)

    @property
    def seconds(self) -> float:
        """Return the seconds until the last one is done."""
        return sum(self.of(one) for one in self._left.values())


def cost_of(one: PlannedTrial) -> float:
    """Return the planned cost of a trial, in seconds."""
    return one.test.cost


def seconds_of(planned: Iterable[PlannedTrial]) -> float:
    """Return the planned cost of several trials, in seconds."""
    return sum(map(cost_of, planned))


def within(
    planned: Sequence[PlannedTrial],
    most_s: float,
    seconds: Callable[[PlannedTrial], float] = cost_of,
    begun: Collection[BenchTest] = (),
) -> tuple[list[PlannedTrial], list[BenchTest]]:
    """Return the trials that fit into so many seconds, and the tests left out whole for it: each time the cheapest that
    suffices, otherwise the most expensive. `begun`: tests with trials that are done; they go on. One test of each suite
    stays, and one of its counted tests, so the rest may not fit."""
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
    """A test that stops in one runtime. `trials`: how many more there would have been."""

    test: BenchTest
    runtime: str
    trials: int


def cells_within(
    planned: Sequence[PlannedTrial], most_s: float, seconds: Callable[[PlannedTrial], float]
) -> tuple[list[PlannedTrial], list[CellOut]]:
    """Return the trials that fit, and the cells left out for it. Use it when no more tests can be left out whole: it
    drops the longest cells until the rest fits, even all of them."""
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
    """Return the plan of a run in lines: all of it, then suite by suite. `there`: trials that an earlier run has
    done."""
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
    """Return a time to wait, rounded to seconds, minutes, hours or days."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 90 * 60:
        return f"{round(seconds / 60)} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.1f} days"


class Schedule:
    """The trials that are still to be done, in their order. `done`: trials that are there; afterwards the keys of those
    that were planned. `within_s`: the time given to the run, `until_s`: its end on the clock `now` (monotonic); None:
    no limit. A test that was left out can come back, when trials take less than expected."""

    def __init__(
        self,
        planned: Sequence[PlannedTrial],
        done: Iterable[BenchTrial],
        within_s: float | None,
        until_s: float | None,
        now: Callable[[], float] = time.monotonic,
        is_there: Callable[[PlannedTrial], bool] = lambda _: False,
    ) -> None:
        there = tuple(done)
        known = {trial.key for trial in there}
        # A cell that continues is warmed up again: its runtime was started anew.
        cold = {(one.test, one.runtime) for one in planned if one.block and one.key not in known}
        again = {one.key for one in planned if not one.block and (one.test, one.runtime) in cold}
        known -= again
        self.done = {one.key for one in planned if one.key in known}
        self.left = [one for one in planned if one.key not in known]
        self.expected = Expected(planned, there)
        self._pool = list(self.left)
        self._begun = {one.test for one in planned if one.key in known}
        self._turns = {test: turn for turn, test in enumerate(dict.fromkeys(one.test for one in planned))}
        self._last: BenchTest | None = None
        self._tests_out: list[BenchTest] = []
        self._cells_out: list[CellOut] = []
        self._told: set[str] = set()
        self._within_s, self._until_s, self._now = within_s, until_s, now
        #: Returns true if a trial's figures already exist, because it shares a boot with one that was done.
        self.is_there = is_there

    @property
    def seconds(self) -> float:
        """Return the expected seconds of the rest."""
        of = self._seconds()
        return sum(of(one) for one in self.left)

    def _seconds(self) -> Callable[[PlannedTrial], float]:
        """Return what each trial is expected to take, looked up once for those of one cell."""
        known: dict[tuple[int, str], float] = {}

        def of(one: PlannedTrial) -> float:
            if self.is_there(one):
                return 0.0
            cell = id(one.test), one.runtime  # the test itself takes long to hash, for thousands of trials each time
            if cell not in known:
                known[cell] = self.expected.of(one)
            return known[cell]

        return of

    def next(self) -> PlannedTrial | None:
        """Return the next trial, and remove it from `left`."""
        if not self.left:
            return None
        one = self.left.pop(0)
        self._pool.remove(one)
        self._begun.add(one.test)
        self._last = one.test
        return one

    def fit(self, *, cells: bool = True) -> list[str]:
        """Leave out what will not end in time, by what trials took until now: first whole tests that have not begun.
        With `cells`, which needs more than a guess of their cost, single cells follow. Returns new messages: for a plan
        all that is left out; while trials run only what was passed over, since the rest changes with every trial."""
        if self._within_s is None or self._until_s is None or not self._pool:
            return []
        most_s, of = self._until_s - self._now(), self._seconds()
        there = [one for one in self._pool if self.is_there(one)]
        to_do = [one for one in self._pool if not self.is_there(one)]
        kept, self._tests_out = within(to_do, most_s, of, self._begun)
        self._cells_out = []
        words = []
        if cells:
            kept, self._cells_out = cells_within(kept, most_s, of)
        elif (cost_s := sum(map(of, kept))) > most_s:
            words.append(f"with one test of each suite it takes about {lasting(cost_s)}, not {lasting(most_s)}")
        # A test that has begun continues; one that comes back does not interrupt it.
        self.left = [*there, *sorted(kept, key=lambda one: one.test != self._last)]
        now = self._turns[self.left[0].test] if cells and self.left else len(self._turns)
        words += [row for test, row in self._out() if self._turns[test] < now and row not in self._told]
        self._told.update(words)
        return words

    def left_out(self) -> list[str]:
        """Return in words what is left out for lack of time, as things stand."""
        return [row for _, row in self._out()]

    def _out(self) -> Iterator[tuple[BenchTest, str]]:
        """Yield what is left out, each with its test."""
        if self._within_s is None:
            return
        why = f"{LEFT_OUT} {lasting(self._within_s)}"
        for test in self._tests_out:
            yield test, f"{title_of(*test.key)}: {why}"
        for cell in self._cells_out:
            yield cell.test, f"{title_of(*cell.test.key)} in {cell.runtime}, {cell.trials} trials of it: {why}"
