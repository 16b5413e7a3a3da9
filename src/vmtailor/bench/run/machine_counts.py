# SPDX-License-Identifier: Apache-2.0
"""Tests of machines without KVM. Their wall time says nothing of virtualisation, so they are counted on the instruction
clock, and compared only with each other. A start is counted up to the program and up to its end. Work of the kernel is
counted for n units and for 2n: the difference is the cost of n, without boot and start-up. Suites that measure
processor or memory are left out."""

from __future__ import annotations

from vmtailor.bench.analysis.benchmarks import INDEX, BenchTest
from vmtailor.bench.analysis.boot_counts import per_unit, started
from vmtailor.bench.analysis.unixbench_index import OURS
from vmtailor.bench.model.instance import BENCH, BENCH_UNIXBENCH
from vmtailor.bench.model.job import STOCK, BenchJob
from vmtailor.bench.model.results import CLOCK, BenchFigure, SuiteName
from vmtailor.bench.run.guest_engine import GuestEngine
from vmtailor.bench.run.image_machine import ImageMachine
from vmtailor.bench.suites.unixbench import ONE_COPY, ONE_CORE

#: Boots of each count: counts do not vary, and two boots show it.
REPEAT = 2
#: Seconds that a boot takes under emulation: of a machine of the image's own, and of a system with an engine in it.
_COST_S, _COST_WITHIN_S = 15.0, 60.0


#: What no count of a monitor's row shows.
_NOT_IN_COUNTS = "two-level paging, caches and real devices are not in instruction counts"


def machine_tests(job: BenchJob) -> list[BenchTest]:
    """Return the counted tests of a job's suites. Their cost is that of an average row."""
    monitors = 0 if job.inside is None else len(job.inside.monitors)
    own, within = len(job.machines), len(job.inside_runtimes) + monitors
    cost_s = (own * _COST_S + within * _COST_WITHIN_S) / max(1, own + within)
    found = []
    if SuiteName.STARTUP in job.suites:
        found.append(BenchTest(SuiteName.STARTUP, "boot", variant=CLOCK, cost=cost_s, warm_up=False))
    if SuiteName.UNIXBENCH in job.suites and not job.at_once:
        found += [
            BenchTest(SuiteName.UNIXBENCH, test, variant=CLOCK, cost=2 * cost_s, warm_up=False)
            for test, row in INDEX.items()
            if row.units and (row.quick_units or not job.quick)
        ]
    return [test for test in found if not job.only or test.test in job.only]


def timed_too(test: BenchTest) -> bool:
    """Return whether machines with KVM are timed in a test: a start, or work of one processor."""
    if test.suite == SuiteName.STARTUP:
        return test.test == "report" and test.variant == "warm"
    return test.suite == SuiteName.UNIXBENCH and test.variant == f"{OURS}, {ONE_COPY}, {ONE_CORE}" and test.count == 1


def cannot_tell(job: BenchJob) -> list[str]:
    """Return in words what is not measured of machines, and of engines within one, and why."""
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
        found += [f"{name}/{one.name}: {_NOT_IN_COUNTS}" for one in job.inside.monitors]
        if SuiteName.UNIXBENCH in job.suites and job.at_once:
            found += [
                f"{name}/{one.name}: unixbench: cannot tell: instances at once are an engine's"
                for one in job.inside.monitors
            ]
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


def counted_trial(test: BenchTest, machine: ImageMachine | GuestEngine) -> tuple[BenchFigure, ...]:
    """Count a test once. Raises GuestError."""
    if test.suite == SuiteName.STARTUP:
        return started(machine.run([BENCH, "report"]), machine.subsystems, machine.starts)
    units = INDEX[test.test].units
    less, more = (machine.run([BENCH_UNIXBENCH, "units", test.test, str(n)]) for n in (units, 2 * units))
    return per_unit(less, more, units, machine.subsystems, machine.work)
