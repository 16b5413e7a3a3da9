# SPDX-License-Identifier: Apache-2.0
"""Units of work of an engine within a machine, of all tests in one boot: each test is two commands, of which the second
does more, and each command is counted by itself. That takes a fraction of the time of two boots for each test. The
kernel is not split by subsystem here: that is known of whole boots alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vmtailor.base.errors import GuestError
from vmtailor.base.text import plain
from vmtailor.bench.analysis.benchmarks import BenchTest
from vmtailor.bench.analysis.boot_counts import units_of_steps
from vmtailor.bench.analysis.guest_rounds import steps
from vmtailor.bench.analysis.schedule import PlannedTrial
from vmtailor.bench.model.job import BenchJob
from vmtailor.bench.model.results import CLOCK, BenchFigure, SuiteName
from vmtailor.bench.run.counted_work import work_of
from vmtailor.bench.run.guest_engine import OURS_DISK, TREE_DISK, GuestEngine, exercise_in_turn, require_ready
from vmtailor.bench.runtimes.guest_runtime import in_turn
from vmtailor.bench.suites.bench_run import TAG, TrialFailed

#: Seconds of the guest's time between two commands, in which it finishes what it has put off.
REST_S = 10
_BY_UNIT = (SuiteName.EFFICIENCY, SuiteName.UNIXBENCH)
_Found = dict[BenchTest, tuple[BenchFigure, ...] | TrialFailed]


class UnitBoots:
    """The boots of a run that count units of work. The first trial of those that share a boot boots for all of
    them."""

    def __init__(self, job: BenchJob, left: Callable[[], Sequence[PlannedTrial]] = tuple) -> None:
        """`left`: returns what is to be done, as things stand."""
        self._wanted = job.one_boot
        self.left = left
        self._known: dict[tuple[str, int], _Found] = {}

    def takes(self, test: BenchTest) -> bool:
        """Return whether a test is counted here."""
        return self._wanted and test.variant == CLOCK and test.suite in _BY_UNIT

    def has(self, one: PlannedTrial) -> bool:
        """Return whether a trial's figures are there already, from the boot of another one."""
        return self.takes(one.test) and one.test in self._known.get(one.boot, {})

    def figures(self, one: PlannedTrial, machine: GuestEngine) -> tuple[BenchFigure, ...]:
        """Return the figures of a trial. Raises TrialFailed."""
        known = self._known.setdefault(one.boot, {})
        if one.test not in known:
            others = (other.test for other in self.left() if other.boot == one.boot)
            tests = list(dict.fromkeys(test for test in (one.test, *others) if self.takes(test) and test not in known))
            known |= _booted(tests, machine)
        found = known[one.test]
        if isinstance(found, TrialFailed):
            raise found
        return found


def _booted(tests: Sequence[BenchTest], machine: GuestEngine) -> _Found:
    """Count the units of some tests in one boot."""
    works = [work_of(test) for test in tests]
    commands = [command for work in works for command in (work.less, work.more)]
    asked = in_turn(machine.described, commands, commands[::2], TAG, TREE_DISK, OURS_DISK)
    try:
        found, gathered = machine.driven(exercise_in_turn(asked, REST_S), (), by_step=True)
        require_ready(found, gathered, found.problem if found.failures else "")
        cost = steps(gathered.counters)[1::2] if gathered.counters is not None else []
        if len(cost) != len(commands):
            raise GuestError(
                f"the machine counted {len(cost)} of {len(commands)} commands", details=plain(found.problem)
            )
    except GuestError as error:
        return {test: TrialFailed(error.message, error.details) for test in tests}
    pairs = zip(cost[::2], cost[1::2], strict=True)
    return {
        test: units_of_steps(less, more, work.units)
        for test, work, (less, more) in zip(tests, works, pairs, strict=True)
    }
