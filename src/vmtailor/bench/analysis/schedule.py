# SPDX-License-Identifier: Apache-2.0
"""The trials that are left, planned again while they run: whatever the host, a run ends within the time it was given,
and says what it left out for that."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from vmtailor.bench.analysis.phrases import title_of
from vmtailor.bench.analysis.trial_cost import LEFT_OUT, CellOut, Expected, cells_within, lasting, within
from vmtailor.bench.analysis.trial_plan import BenchTest, PlannedTrial
from vmtailor.bench.model.results import BenchTrial


class Schedule:
    """What is still to be done, in its order. `done`: trials that are there, and then their keys, of those planned;
    `within_s`: what the run was given, `until_s`: its end on the clock (`now`, monotonic); None: it takes as long as it
    does. What is left out can come back, when trials turn out to take less than was expected."""

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
        # A cell that is gone on with is warmed up again: its runtime was begun anew.
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
        #: Whether a trial's figures are there, and it takes no time: what shares a boot with one that was done.
        self.is_there: Callable[[PlannedTrial], bool] = lambda _: False

    @property
    def seconds(self) -> float:
        """What is left is expected to take so long."""
        of = self._seconds()
        return sum(of(one) for one in self.left)

    def _seconds(self) -> Callable[[PlannedTrial], float]:
        """What each trial is expected to take, looked up once for those of one cell."""
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
        """The trial whose turn it is; it is not among `left` any more."""
        if not self.left:
            return None
        one = self.left.pop(0)
        self._pool.remove(one)
        self._begun.add(one.test)
        self._last = one.test
        return one

    def fit(self, *, cells: bool = True) -> list[str]:
        """Leave out what will not end in time, by what trials took until now. Tests that were not begun first, in
        whole; then, unless what they cost is but a guess, single cells, whatever that leaves. Returns in words what was
        not said before: of a plan all that is left out; while trials run what was passed over, since the rest of it
        changes with every trial."""
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
        # What has begun is gone on with; what comes back does not interrupt it.
        self.left = [*there, *sorted(kept, key=lambda one: one.test != self._last)]
        now = self._turns[self.left[0].test] if cells and self.left else len(self._turns)
        words += [row for test, row in self._out() if self._turns[test] < now and row not in self._told]
        self._told.update(words)
        return words

    def left_out(self) -> list[str]:
        """What is not done for the sake of time, as things stand, in words."""
        return [row for _, row in self._out()]

    def _out(self) -> Iterator[tuple[BenchTest, str]]:
        """The same, with the test that each is about."""
        if self._within_s is None:
            return
        why = f"{LEFT_OUT} {lasting(self._within_s)}"
        for test in self._tests_out:
            yield test, f"{_title(test)}: {why}"
        for cell in self._cells_out:
            yield cell.test, f"{_title(cell.test)} in {cell.runtime}, {cell.trials} trials of it: {why}"


def _title(test: BenchTest) -> str:
    return title_of(*test.key)
