# SPDX-License-Identifier: Apache-2.0
"""Machines without KVM: their wall time says nothing of virtualisation, so they are counted on the instruction clock,
and compared with each other alone. A start is counted up to the program and up to its end; work that the kernel does
is counted for so many units and for twice as many, and their difference is the cost of a unit: what the boot and the
program's own start cost cancels. Suites whose figures would be of the processor or of memory cannot tell."""

from __future__ import annotations

from collections.abc import Sequence

from vmtailor.analysis.bench.clock import CLOCK
from vmtailor.analysis.bench.plan import BenchTest
from vmtailor.base.errors import GuestError
from vmtailor.model.bench.job import BenchJob
from vmtailor.model.bench.results import BenchFigure, SuiteName
from vmtailor.model.boots.boot import Boot, Phase
from vmtailor.pipeline.bench.bench_run import BENCH, BenchRun, TrialFailed
from vmtailor.pipeline.bench.machines import Booted
from vmtailor.pipeline.bench.suites.unixbench import PROGRAM

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
_COST_S = 30.0
#: The marks of a program's end.
ENDS = ("ready", "end")


def machine_tests(job: BenchJob) -> list[BenchTest]:
    """What is counted of a job's suites."""
    found = []
    if SuiteName.STARTUP in job.suites:
        found.append(BenchTest(SuiteName.STARTUP, "boot", 1, CLOCK, _COST_S, False))
    if SuiteName.UNIXBENCH in job.suites:
        tests = QUICK if job.quick else tuple(UNITS)
        found += [BenchTest(SuiteName.UNIXBENCH, test, 1, CLOCK, 2 * _COST_S, False) for test in tests]
    return [test for test in found if not job.only or test.test in job.only]


def cannot_tell(job: BenchJob) -> list[str]:
    """What is not measured of machines, and why."""
    counted = (SuiteName.STARTUP, SuiteName.UNIXBENCH)
    found = []
    for machine in job.machines:
        for suite in job.suites:
            if suite not in counted:
                found.append(f"{machine.name}: {suite}: cannot tell without KVM: emulated time is not virtualised time")
        if SuiteName.UNIXBENCH in job.suites:
            found.append(f"{machine.name}: unixbench dhry2reg, whetstone-double: cannot tell without KVM")
    return found


def machine_trial(run: BenchRun, test: BenchTest, machine: Booted) -> tuple[BenchFigure, ...]:
    """Count it once. Raises TrialFailed."""
    try:
        if test.suite == SuiteName.STARTUP:
            return _started(machine.run([BENCH, "report"]))
        units = UNITS[test.test]
        less, more = (machine.run([PROGRAM, "units", test.test, str(n)]) for n in (units, 2 * units))
        return per_unit(less, more, units)
    except GuestError as error:
        raise TrialFailed(error.message, error.details) from error


def _started(found: Boot) -> tuple[BenchFigure, ...]:
    figures: list[BenchFigure] = []
    for name, phases in (("to the program", _UP_TO_PROGRAM), ("to its end", (*_UP_TO_PROGRAM, Phase.START_UP))):
        kernel, user, devices = counts(found, phases)
        figures += [
            BenchFigure(f"kernel {name}", kernel, "instructions"),
            BenchFigure(f"user {name}", user, "instructions"),
            BenchFigure(f"devices {name}", devices, "accesses"),
        ]
        at_ns = _at_ns(found, *(("entry",) if name == "to the program" else ENDS))
        if at_ns is not None:
            figures.append(BenchFigure(f"virtual time {name}", at_ns / 1e9, "s"))
    return tuple(figures)


def per_unit(less: Boot, more: Boot, units: int) -> tuple[BenchFigure, ...]:
    """What a unit costs: the difference of two boots, of which one did so many units more."""
    phase = (Phase.START_UP,)
    kernel, user, devices = ((b - a) / units for a, b in zip(counts(less, phase), counts(more, phase), strict=True))
    figures = [
        BenchFigure("kernel a unit", kernel, "instructions"),
        BenchFigure("user a unit", user, "instructions"),
        BenchFigure("devices a unit", devices, "accesses"),
    ]
    times = [(_at_ns(one, "entry"), _at_ns(one, *ENDS)) for one in (less, more)]
    took = [end - begin for begin, end in times if begin is not None and end is not None]
    if len(took) == 2:
        figures.append(BenchFigure("virtual time a unit", (took[1] - took[0]) / units / 1e9, "s"))
    return tuple(figures)


def counts(found: Boot, phases: Sequence[Phase]) -> tuple[float, float, float]:
    """Instructions of the kernel and of user programs, and accesses to devices, in some phases."""
    rows = [row for row in found.phases if row.phase in phases]
    devices = sum((row.port_accesses or 0) + (row.mmio_accesses or 0) for row in rows)
    return float(sum(row.kernel for row in rows)), float(sum(row.user for row in rows)), float(devices)


def _at_ns(found: Boot, *names: str) -> int | None:
    """Virtual time at the first of these milestones that there is."""
    return next((m.virtual_ns for m in map(found.milestone, names) if m is not None and m.virtual_ns is not None), None)
