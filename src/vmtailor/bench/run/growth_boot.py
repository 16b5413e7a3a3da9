# SPDX-License-Identifier: Apache-2.0
"""The cost of instances in memory within a machine. One boot starts idle instances one after the other and looks at the
machine's memory at each number that is asked for; another, of a small machine, starts them until one fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from vmtailor.base.errors import GuestError
from vmtailor.base.text import plain
from vmtailor.bench.analysis import guest_growth
from vmtailor.bench.analysis.benchmarks import BenchTest, benchmark
from vmtailor.bench.analysis.guest_growth import Growth
from vmtailor.bench.analysis.schedule import PlannedTrial
from vmtailor.bench.model.job import BenchJob
from vmtailor.bench.model.results import CLOCK, BenchFigure, SuiteName
from vmtailor.bench.run.guest_engine import OURS_DISK, PREPARE_S, TREE_DISK, GuestEngine, require_ready
from vmtailor.bench.runtimes.growth_script import SEEN, growing
from vmtailor.bench.suites.bench_run import TAG, TrialFailed
from vmtailor.model.boots.system_exercise import Saying, SystemExercise, SystemReady, SystemReadyKind
from vmtailor.model.exercise import Step, StepKind

#: Numbers of idle instances, where the user names none.
COUNTS = (1, 4, 16)
IDLE, DENSITY = "idle", "density"
#: Memory of the machine that is filled, and the most instances that are started in it.
SMALL_BYTES, MOST, QUICK_MOST = 384 << 20, 64, 12
#: Seconds of processor time after which nothing more is expected.
_PATIENCE_S = 1800.0
#: Seconds that a boot takes under emulation before its first instance, and that each adds.
_BOOT_S, _EACH_S = 120.0, 4.0
_NOTES = "bench-growth"


def tests(job: BenchJob) -> list[BenchTest]:
    """Return the tests of memory within a job's machines."""
    idle, density, counts = benchmark(SuiteName.MEMORY, IDLE), benchmark(SuiteName.MEMORY, DENSITY), counts_of(job)
    each_s = (_BOOT_S + _EACH_S * max(counts)) / len(counts)
    return [
        *(replace(idle.planned(count=count, variant=CLOCK, warm_up=False), cost=each_s) for count in counts),
        replace(density.planned(variant=CLOCK, warm_up=False), cost=_BOOT_S + _EACH_S * _most(job)),
    ]


def counts_of(job: BenchJob) -> tuple[int, ...]:
    """Return the numbers of idle instances of a job; the machine itself has none."""
    return tuple(count for count in job.counts if count > 0) or (1,)


class Growths:
    """The boots of a run that look at memory. The first trial of those that share a boot boots for all of them."""

    def __init__(self, job: BenchJob) -> None:
        self._job = job
        self._known: dict[tuple[str, int], Growth | TrialFailed] = {}

    def has(self, one: PlannedTrial) -> bool:
        """Return whether a trial's figures are there already, from the boot of another one."""
        test = one.test
        return (test.suite, test.test, test.variant) == (SuiteName.MEMORY, IDLE, CLOCK) and one.boot in self._known

    def figures(self, one: PlannedTrial, machine: GuestEngine) -> tuple[BenchFigure, ...]:
        """Return the figures of a trial. Raises TrialFailed, GuestError."""
        test, row = one.test, benchmark(one.test.suite, one.test.test)
        if test.test == DENSITY:
            small = machine.with_memory(SMALL_BYTES)
            seen = grown(small, (), _most(self._job))
            values = seen.density()
        else:
            seen = self._shared(one, lambda: grown(machine, counts_of(self._job), max(counts_of(self._job))))
            values = seen.idle(test.count, machine.known.machine.machine.memory_bytes)
        if values is None:
            started = "an unknown number" if seen.started is None else str(seen.started)
            raise TrialFailed(f"{started} of {test.count} instances were there")
        return row.measured(values)

    def _shared(self, one: PlannedTrial, boot: Callable[[], Growth]) -> Growth:
        if one.boot not in self._known:
            try:
                self._known[one.boot] = boot()
            except GuestError as error:
                self._known[one.boot] = TrialFailed(error.message, error.details)
        found = self._known[one.boot]
        if isinstance(found, TrialFailed):
            raise found
        return found


def _most(job: BenchJob) -> int:
    return QUICK_MOST if job.quick else MOST


def grown(machine: GuestEngine, looks: Sequence[int], most: int) -> Growth:
    """Boot, start up to `most` idle instances, and return what the machine noted at these numbers of them. Raises
    GuestError where the engine was not made ready, or the machine did not come to its end."""
    prepare = growing(machine.described, looks, most, TAG, TREE_DISK, OURS_DISK)
    ready = Step(StepKind.COMMAND, argv=("sh", "-c", prepare))
    exercise = SystemExercise(
        origin="bench", ready=SystemReady(SystemReadyKind.COMMAND, ready, timeout_s=2 * PREPARE_S),
        load=(Step(StepKind.COMMAND, argv=("true",)),), step_timeout_s=2 * PREPARE_S,
    )  # fmt: skip
    found, gathered = machine.driven(exercise, [Saying(_NOTES, ("cat", SEEN))], counted=False, patience_s=_PATIENCE_S)
    require_ready(found, gathered)
    text = gathered.report.file(_NOTES)
    if not text:
        raise GuestError("the machine did not say what it saw", details=plain(found.problem)[:1000])
    return guest_growth.read(text)
