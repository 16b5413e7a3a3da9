# SPDX-License-Identifier: Apache-2.0
"""Several instances at once in one engine within a machine. Each number of instances has one boot, which runs all
remaining tests, each in all instances at the same time. A run resumes test by test."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from vmtailor.base.errors import GuestError, UserInputError
from vmtailor.base.text import plain
from vmtailor.bench.analysis.benchmarks import INDEX, BenchTest
from vmtailor.bench.analysis.guest_rounds import LEAST_OVERLAP, Said, figures, overlap, said, steps
from vmtailor.bench.analysis.schedule import PlannedTrial, orders
from vmtailor.bench.model.job import BenchJob
from vmtailor.bench.model.results import VIRTUAL, BenchFigure, SuiteName
from vmtailor.bench.run.guest_engine import BOOT_S, OURS_DISK, TREE_DISK, GuestEngine, require_ready
from vmtailor.bench.runtimes import description
from vmtailor.bench.runtimes.guest_runtime import ROUNDS, at_once, conducting
from vmtailor.bench.suites.bench_run import TAG, TrialFailed
from vmtailor.model.architecture import named
from vmtailor.model.boots.boot import Boot
from vmtailor.model.boots.counters import Totals
from vmtailor.model.boots.ending import Gathered
from vmtailor.model.boots.system_exercise import Saying, SystemExercise, SystemReady, SystemReadyKind
from vmtailor.model.exercise import Expect, Step, StepKind

#: The number that stands for no instance: the machine itself, measured in the chroot.
NONE = 0
#: Seconds of the guest's time between two rounds, in which it finishes its delayed writes.
REST_S = 10
#: Seconds that a round takes here for each second of the guest's, at one nanosecond an instruction; and that everything
#: before the first round takes, boot included.
_SLOWER, _START_S = 10.0, 90.0
#: Factor by which a guest may keep a processor of the host busy for longer than its own time.
_PATIENCE = 60.0
#: The file with the instances' output that the guest sends, and the prefix of each one's part.
_SAID, _INSTANCE = "bench-said", "instance "


def tests(job: BenchJob) -> list[BenchTest]:
    """Return the tests that a job runs in several instances at once: all of them for each number of instances. NONE
    counts as one instance."""
    if SuiteName.UNIXBENCH not in job.suites:
        return []
    counts = dict.fromkeys(max(1, count) for count in job.counts)
    names = [test for test in INDEX if not job.only or test in job.only]
    # A processor with longer instructions executes fewer of them in a second.
    pace = max((named(one.machine.machine.architecture).emulator.pace for one in job.insides), default=0)
    slower = _SLOWER / (1 << pace)
    return [
        BenchTest(
            suite=SuiteName.UNIXBENCH,
            test=test,
            count=count,
            variant=VIRTUAL,
            cost=slower * INDEX[test].seconds(quick=job.quick) + _START_S / len(names),
            warm_up=False,
        )
        for count in counts
        for test in names
    ]


def planned(job: BenchJob, runtimes: Sequence[str]) -> list[PlannedTrial]:
    """Return all trials in their order, boot by boot. `runtimes`: names of rows. Where NONE is asked for, the machine
    itself is measured only once, for it."""
    found, all_tests = [], tests(job)
    for count in dict.fromkeys(test.count for test in all_tests):
        asked = [
            name
            for name in runtimes
            if NONE not in job.counts or (count == 1 if is_machine_itself(name) else count in job.counts)
        ]
        for block, order in enumerate(orders(asked, job.repeat, f"{job.seed}/at once/{count}"), 1):
            for name in order:
                found += [PlannedTrial(test, name, block) for test in all_tests if test.count == count]
    return found


def is_machine_itself(runtime: str) -> bool:
    """Return whether a row isolates nothing: in a machine, it is the row named after the chroot."""
    name = runtime.rpartition("/")[2]
    return name in description.known() and description.load(name).chroot


def check(counts: Sequence[int], runtimes: Sequence[str], *, inside: bool) -> None:
    """Raise UserInputError where NONE is asked for, and there is no machine or no row that stands for it."""
    if NONE not in counts:
        return
    if not inside:
        raise UserInputError(
            "--n 0 is a machine without containers, and there is none",
            hint="name one by --inside vm:DISK; on this host, native with --n 1 is that",
        )
    if not any(is_machine_itself(name) for name in runtimes):
        raise UserInputError("--n 0 is the machine itself, which is not in --on", hint="--on native,…")


@dataclass(frozen=True)
class RoundsBoot:
    """The work of one boot: `count` instances run these tests, each for so many seconds."""

    count: int
    tests: tuple[tuple[str, float], ...]

    def exercise(self, one: description.Description) -> SystemExercise:
        """Return the exercise. The system is ready once all instances are there; then each test is two steps, a rest
        and the round; at last all are told to end."""
        conduct = conducting(self.count)
        prepare = Step(StepKind.COMMAND, argv=("sh", "-c", at_once(one, self.count, TAG, TREE_DISK, OURS_DISK)))
        rest = Step(StepKind.COMMAND, argv=("sh", "-c", f"sync; sleep {REST_S}"))
        load = []
        for test, seconds in self.tests:
            load += [rest, _right((*conduct, test, f"{seconds:g}"))]
        longest = sum(seconds for _, seconds in self.tests) + 1800.0
        return SystemExercise(
            origin="bench", ready=SystemReady(SystemReadyKind.COMMAND, prepare, timeout_s=longest),
            load=(*load, rest, _right((*conduct, "end"))), step_timeout_s=longest,
        )  # fmt: skip

    def sayings(self) -> list[Saying]:
        """Return the questions after the last round: the output of each instance, under its number."""
        parts = [f"echo {_INSTANCE}{number}; cat {ROUNDS}/{number}.said" for number in range(self.count)]
        return [Saying(_SAID, ("sh", "-c", "; ".join(parts)))]

    @property
    def patience_s(self) -> float:
        """Return the seconds of processor time after which nothing more is expected."""
        return BOOT_S + _PATIENCE * sum(seconds for _, seconds in self.tests)

    def figures(self, found: Boot, gathered: Gathered) -> dict[str, tuple[BenchFigure, ...] | TrialFailed]:
        """Return test → its figures, or why it has none."""
        cost = steps(gathered.counters) if gathered.counters is not None else []
        told = [said(part) for part in gathered.report.file(_SAID).split(_INSTANCE)[1:]]
        results: dict[str, tuple[BenchFigure, ...] | TrialFailed] = {}
        for place, (test, _) in enumerate(self.tests):
            try:
                results[test] = self._round(test, cost[2 * place + 1 : 2 * place + 2], told)
            except TrialFailed as error:
                error.details = error.details or plain(found.problem)[:1000]
                results[test] = error
        return results

    def _round(self, test: str, cost: Sequence[Totals], told: Sequence[Mapping[str, Said]]) -> tuple[BenchFigure, ...]:
        instances = [one[test] for one in told if test in one]
        if len(instances) < self.count:
            raise TrialFailed(f"{len(instances)} of {self.count} instances did it")
        if not cost:
            raise TrialFailed("the machine did not count it")
        if (share := overlap(instances)) < LEAST_OVERLAP:
            raise TrialFailed(f"only {100 * share:.0f} % of it was done by all at the same time")
        return figures(instances, cost[0])


def _right(words: Sequence[str]) -> Step:
    return Step(StepKind.COMMAND, argv=tuple(words), expect=Expect(exit_code=0))


#: The key of trials that share a boot: runtime, number of instances, repetition.
_BootKey = tuple[str, int, int]


class AtOnce:
    """The trials of a run with several instances at once. The first trial of those that share a boot boots for all of
    them."""

    def __init__(self, job: BenchJob, left: Callable[[], Sequence[PlannedTrial]] = tuple) -> None:
        """`left`: returns what is to be done, as things stand."""
        self._job = job
        self.left = left
        self._known: dict[_BootKey, dict[str, tuple[BenchFigure, ...] | TrialFailed]] = {}
        self._seconds: dict[_BootKey, float] = {}

    def figures(self, one: PlannedTrial, machine: GuestEngine) -> tuple[BenchFigure, ...]:
        """Return the figures of a trial. Raises TrialFailed."""
        known = self._known.setdefault(_boot_of(one), {})
        if one.test.test not in known:
            asked = {other.test.test for other in self.left() if _boot_of(other) == _boot_of(one)} | {one.test.test}
            names = [name for name in INDEX if name in asked - known.keys()]
            lasting = tuple((name, INDEX[name].seconds(quick=self._job.quick)) for name in names)
            wanted = RoundsBoot(one.test.count, lasting)
            began = time.monotonic()
            known |= _booted(wanted, machine)
            self._seconds[_boot_of(one)] = (time.monotonic() - began) / len(names)
        found = known[one.test.test]
        if isinstance(found, TrialFailed):
            raise found
        return found

    def has(self, one: PlannedTrial) -> bool:
        """Return whether a trial's figures are there already, from the boot of another one."""
        return one.test.variant == VIRTUAL and one.test.test in self._known.get(_boot_of(one), {})

    def seconds(self, one: PlannedTrial) -> float:
        """Return a trial's share of the time of its boot."""
        return self._seconds.get(_boot_of(one), 0.0)


def _boot_of(one: PlannedTrial) -> _BootKey:
    return one.runtime, one.test.count, one.block


def _booted(wanted: RoundsBoot, machine: GuestEngine) -> dict[str, tuple[BenchFigure, ...] | TrialFailed]:
    try:
        found, gathered = machine.driven(
            wanted.exercise(machine.described), wanted.sayings(), by_step=True, patience_s=wanted.patience_s
        )
        require_ready(found, gathered)
    except GuestError as error:
        return {test: TrialFailed(error.message, error.details) for test, _ in wanted.tests}
    return wanted.figures(found, gathered)
