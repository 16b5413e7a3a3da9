# SPDX-License-Identifier: Apache-2.0
"""The trials that are left, planned again while they run: whatever the host, a run ends within the time it was given,
and says what it left out for that."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence

from vmtailor.analysis.bench.expecting import LEFT_OUT, CellOut, Expected, cells_within, lasting, within
from vmtailor.analysis.bench.plan import BenchTest, PlannedTrial
from vmtailor.analysis.bench.wording import title_of
from vmtailor.model.bench.results import BenchTrial


class Schedule:
    """What is still to be done, in its order. `done`: trials that are there, and then their
    keys, of those planned; `within_s`: what the run was given,
    `until_s`: its end on the clock (`now`, monotonic); None: it takes as long as it does."""

    def __init__(
        self,
        planned: Sequence[PlannedTrial],
        done: Iterable[BenchTrial],
        within_s: float | None,
        until_s: float | None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        there = tuple(done)
        known = {trial.key for trial in there}
        self.done = {one.key for one in planned if one.key in known}
        self.left = [one for one in planned if one.key not in known]
        self.expected = Expected(planned, there)
        self._begun = {one.test for one in planned if one.key in known}
        self._within_s, self._until_s, self._now = within_s, until_s, now

    def next(self) -> PlannedTrial | None:
        """The trial whose turn it is; it is not among `left` any more."""
        if not self.left:
            return None
        one = self.left.pop(0)
        self._begun.add(one.test)
        return one

    def fit(self, *, cells: bool = True) -> list[str]:
        """Leave out what will not end in time, by what trials took until now; returns it in words. Tests that were not
        begun first, in whole; then, unless what they cost is but a guess, single cells, whatever that leaves."""
        if self._within_s is None or self._until_s is None or not self.left:
            return []
        most_s = self._until_s - self._now()
        kept, tests = within(self.left, most_s, self.expected.of, self._begun)
        words = tests_out(tests, self._within_s)
        out: list[CellOut] = []
        if cells:
            kept, out = cells_within(kept, most_s, self.expected.of)
        elif (cost_s := sum(map(self.expected.of, kept))) > most_s:
            words.append(f"with one test of each suite it takes about {lasting(cost_s)}, not {lasting(most_s)}")
        stay = {one.key for one in kept}
        self.expected.dropped(one for one in self.left if one.key not in stay)
        self.left = kept
        for cell in out:
            test = title_of(cell.test.suite, cell.test.test, cell.test.count, cell.test.variant)
            words.append(f"{test} in {cell.runtime}, {cell.trials} trials of it: {LEFT_OUT} {lasting(self._within_s)}")
        return words


def tests_out(tests: Collection[BenchTest], within_s: float) -> list[str]:
    """Tests that are left out, each in words."""
    return [
        f"{title_of(test.suite, test.test, test.count, test.variant)}: {LEFT_OUT} {lasting(within_s)}" for test in tests
    ]
