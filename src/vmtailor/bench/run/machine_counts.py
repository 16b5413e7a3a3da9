# SPDX-License-Identifier: Apache-2.0
"""Machines without KVM: their wall time says nothing of virtualisation, so they are counted on the instruction clock,
and compared with each other alone. A start is counted up to the program and up to its end; work that the kernel does
is counted for so many units and for twice as many, and their difference is the cost of a unit: what the boot and the
program's own start cost cancels. Suites whose figures would be of the processor or of memory cannot tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vmtailor.base.errors import GuestError
from vmtailor.bench.analysis.bench_clock import CLOCK
from vmtailor.bench.analysis.boot_counts import by_subsystem, counts, part_figures
from vmtailor.bench.analysis.trial_plan import BenchTest
from vmtailor.bench.analysis.unixbench_index import INDEX, OURS, SCORE
from vmtailor.bench.model.bench_machine import STOCK
from vmtailor.bench.model.instance import BENCH, BENCH_UNIXBENCH
from vmtailor.bench.model.job import BenchJob
from vmtailor.bench.model.results import BenchFigure, SuiteName
from vmtailor.bench.run.guest_engine import Inside
from vmtailor.bench.run.image_machine import Booted
from vmtailor.bench.runtimes.stopwatch import Timed
from vmtailor.bench.suites.bench_run import BenchRun, TrialFailed, number, said_object
from vmtailor.bench.suites.startup import EXIT
from vmtailor.bench.suites.unixbench import ONE_COPY, ONE_CORE
from vmtailor.model.boots.boot import Boot, Phase

#: Units of work of each kernel-bound test; twice as many the second time. Large enough that ticks of timers, of which
#: few come in so little virtual time, do not matter.
UNITS = {
    "execl": 60, "fstime": 4000, "fsbuffer": 1000, "fsdisk": 8000, "pipe": 2000, "context1": 1000, "spawn": 100,
    "syscall": 4000, "shell1": 2, "shell8": 1,
}  # fmt: skip
QUICK = ("execl", "fstime", "pipe", "context1", "spawn", "syscall")
#: Counts do not vary: two boots show that they do not.
REPEAT = 2
_UP_TO_PROGRAM = (Phase.FIRMWARE, Phase.KERNEL, Phase.INIT)
#: Seconds that a boot takes under emulation: of a machine of the image's own, and of a system with an engine in it.
_COST_S, _COST_WITHIN_S = 15.0, 60.0
#: The marks of a program's end.
ENDS = ("ready", "end")


@dataclass(frozen=True)
class Stretch:
    """The part of a boot in which the command runs: its phase, and the marks of its begin and end."""

    phase: Phase
    begin: str
    ends: tuple[str, ...]


#: In a machine of the image's own, the command is what its init starts; in one with engines, what is asked of it once
#: all is ready.
OWN, WITHIN = Stretch(Phase.START_UP, "entry", ENDS), Stretch(Phase.LOAD, "load", ("load_end",))


def machine_tests(job: BenchJob) -> list[BenchTest]:
    """What is counted of a job's suites. Their cost is that of the mean row."""
    own, within = len(job.machines), len(job.inside_runtimes)
    cost_s = (own * _COST_S + within * _COST_WITHIN_S) / max(1, own + within)
    found = []
    if SuiteName.STARTUP in job.suites:
        found.append(BenchTest(SuiteName.STARTUP, "boot", 1, CLOCK, cost_s, False))
    if SuiteName.UNIXBENCH in job.suites and not job.at_once:
        tests = QUICK if job.quick else tuple(UNITS)
        found += [BenchTest(SuiteName.UNIXBENCH, test, 1, CLOCK, 2 * cost_s, False) for test in tests]
    return [test for test in found if not job.only or test.test in job.only]


def timed_too(test: BenchTest) -> bool:
    """Whether a test of the wall clock is done in machines where KVM works: a start, and work of one processor."""
    if test.suite == SuiteName.STARTUP:
        return test.test == "report" and test.variant == "warm"
    return test.suite == SuiteName.UNIXBENCH and test.variant == f"{OURS}, {ONE_COPY}, {ONE_CORE}" and test.count == 1


def machine_timed(run: BenchRun, test: BenchTest, machine: Booted) -> tuple[BenchFigure, ...]:
    """Do one of these, once. Raises TrialFailed."""
    try:
        if test.suite == SuiteName.STARTUP:
            return timed_start(machine.timed([BENCH, "report"]))
        seconds = INDEX[test.test].seconds / (10 if run.quick else 1)
        found = machine.timed([BENCH_UNIXBENCH, test.test, f"{seconds:g}", "1"])
    except GuestError as error:
        raise TrialFailed(error.message, error.details) from error
    assert found.container is not None
    said = said_object(Timed((), None, found.seconds, 0, found.container.stdout.encode(), b""))
    return (BenchFigure(SCORE, number(said, SCORE), INDEX[test.test].unit, True),)


def timed_start(found: Boot) -> tuple[BenchFigure, ...]:
    """To the end of the start command, as everywhere; and to the program's start, as our init tells it."""
    figures = [BenchFigure(EXIT, found.seconds, "s")]
    entry = found.milestone("entry")
    if entry is not None and entry.wall_s is not None:
        figures.append(BenchFigure("program started", entry.wall_s, "s"))
    return tuple(figures)


def cannot_tell(job: BenchJob) -> list[str]:
    """What is not measured of machines, and of engines within one, and why."""
    counted = (SuiteName.STARTUP, SuiteName.UNIXBENCH)
    found = []
    if job.inside is not None:
        name = job.inside.machine.name
        found += [
            f"{name}/…: {suite}: cannot tell: what runs within a machine is counted, not timed"
            for suite in job.suites
            if suite not in counted
        ]
        if SuiteName.UNIXBENCH in job.suites and not job.at_once:
            found.append(f"{name}/…: unixbench dhry2reg, whetstone-double: cannot tell on the instruction clock")
    for machine in job.machines:
        for suite in job.suites:
            if suite not in counted:
                why = (
                    "not measured in machines" if job.kvm
                    else "cannot tell without KVM: emulated time is not virtualised time"
                )  # fmt: skip
                found.append(f"{machine.name}: {suite}: {why}")
        if SuiteName.UNIXBENCH in job.suites and job.at_once:
            found.append(f"{machine.name}: unixbench: cannot tell: instances at once are an engine's within a machine")
        elif SuiteName.UNIXBENCH in job.suites and not job.kvm:
            found.append(f"{machine.name}: unixbench dhry2reg, whetstone-double: cannot tell without KVM")
        if not machine.subsystems and any(suite in counted for suite in job.suites):
            found.append(
                f"{machine.name}: by subsystem of the kernel: only beside {STOCK}, whose source files are known"
            )
    return found


def machine_trial(test: BenchTest, machine: Booted) -> tuple[BenchFigure, ...]:
    """Count it once. Raises TrialFailed."""
    try:
        if test.suite == SuiteName.STARTUP:
            return started(machine.run([BENCH, "report"]), machine.subsystems)
        units = UNITS[test.test]
        less, more = (machine.run([BENCH_UNIXBENCH, "units", test.test, str(n)]) for n in (units, 2 * units))
        return per_unit(less, more, units, machine.subsystems)
    except GuestError as error:
        raise TrialFailed(error.message, error.details) from error


def inside_trial(test: BenchTest, one: Inside) -> tuple[BenchFigure, ...]:
    """Count a test once in an engine within a machine. Raises TrialFailed."""
    try:
        if test.suite == SuiteName.STARTUP:
            return started_within(one.run([BENCH, "report"]), one.subsystems)
        units = UNITS[test.test]
        less, more = (one.run([BENCH_UNIXBENCH, "units", test.test, str(n)]) for n in (units, 2 * units))
        return per_unit(less, more, units, one.subsystems, WITHIN)
    except GuestError as error:
        raise TrialFailed(error.message, error.details) from error


def started_within(found: Boot, subsystems: Mapping[str, str]) -> tuple[BenchFigure, ...]:
    """What a start costs in an engine that is ready: from the start command to its end. The machine's own boot is not
    in it, and there is nothing that would be the way to the program in every engine."""
    name = "to its end"
    kernel, user, devices = counts(found, (WITHIN.phase,))
    figures = [
        BenchFigure(f"kernel {name}", kernel, "instructions"),
        BenchFigure(f"user {name}", user, "instructions"),
        BenchFigure(f"devices {name}", devices, "accesses"),
        *part_figures(f"kernel {name}", by_subsystem(found, (WITHIN.phase,), subsystems)),
    ]
    begin, end = _at_ns(found, WITHIN.begin), _at_ns(found, *WITHIN.ends)
    if begin is not None and end is not None:
        figures.append(BenchFigure(f"virtual time {name}", (end - begin) / 1e9, "s"))
    return tuple(figures)


def started(found: Boot, subsystems: Mapping[str, str]) -> tuple[BenchFigure, ...]:
    """What a start costs: to the program, and to its end. `subsystems`: function of the kernel → its subsystem."""
    figures: list[BenchFigure] = []
    for name, phases in (("to the program", _UP_TO_PROGRAM), ("to its end", (*_UP_TO_PROGRAM, Phase.START_UP))):
        kernel, user, devices = counts(found, phases)
        figures += [
            BenchFigure(f"kernel {name}", kernel, "instructions"),
            BenchFigure(f"user {name}", user, "instructions"),
            BenchFigure(f"devices {name}", devices, "accesses"),
            *part_figures(f"kernel {name}", by_subsystem(found, phases, subsystems)),
        ]
        at_ns = _at_ns(found, *(("entry",) if name == "to the program" else ENDS))
        if at_ns is not None:
            figures.append(BenchFigure(f"virtual time {name}", at_ns / 1e9, "s"))
    return tuple(figures)


def per_unit(
    less: Boot, more: Boot, units: int, subsystems: Mapping[str, str], where: Stretch = OWN
) -> tuple[BenchFigure, ...]:
    """What a unit costs: the difference of two boots, of which one did so many units more. `subsystems`: as above;
    `where`: the part of the boots in which they did it."""
    phase = (where.phase,)
    kernel, user, devices = ((b - a) / units for a, b in zip(counts(less, phase), counts(more, phase), strict=True))
    figures = [
        BenchFigure("kernel a unit", kernel, "instructions"),
        BenchFigure("user a unit", user, "instructions"),
        BenchFigure("devices a unit", devices, "accesses"),
    ]
    one, other = (by_subsystem(boot, phase, subsystems) for boot in (less, more))
    parts = {name: (other.get(name, 0.0) - one.get(name, 0.0)) / units for name in one.keys() | other.keys()}
    figures += part_figures("kernel a unit", parts)
    times = [(_at_ns(one, where.begin), _at_ns(one, *where.ends)) for one in (less, more)]
    took = [end - begin for begin, end in times if begin is not None and end is not None]
    if len(took) == 2:
        figures.append(BenchFigure("virtual time a unit", (took[1] - took[0]) / units / 1e9, "s"))
    return tuple(figures)


def _at_ns(found: Boot, *names: str) -> int | None:
    """Virtual time at the first of these milestones that there is."""
    return next((m.virtual_ns for m in map(found.milestone, names) if m is not None and m.virtual_ns is not None), None)
