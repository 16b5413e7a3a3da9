# SPDX-License-Identifier: Apache-2.0
"""Tests of machines without KVM. Their wall time says nothing of virtualisation, so they are counted on the instruction
clock, and compared only with each other. A start is counted up to the program and up to its end. Work of the kernel is
counted for n units and for 2n: the difference is the cost of n, without boot and start-up. What engines within a
machine do of the suite of efficiency is counted in the same way; how fast it is, no count tells."""

from __future__ import annotations

from vmtailor.bench.analysis.benchmarks import INDEX, BenchTest
from vmtailor.bench.analysis.boot_counts import per_unit, started
from vmtailor.bench.analysis.unixbench_index import OURS
from vmtailor.bench.model.instance import BENCH
from vmtailor.bench.model.job import STOCK, BenchJob
from vmtailor.bench.model.results import CLOCK, BenchFigure, SuiteName
from vmtailor.bench.run import growth_boot
from vmtailor.bench.run.counted_work import WITHIN_WORK, work_of
from vmtailor.bench.run.guest_engine import GuestEngine
from vmtailor.bench.run.image_machine import ImageMachine
from vmtailor.bench.suites.unixbench import ONE_COPY, ONE_CORE

#: Boots of each count: counts do not vary, and two boots show it.
REPEAT = 2
#: Seconds that a boot takes under emulation: of a machine of the image's own, and of a system with an engine in it (a
#: minute for a chroot or LXC, three or four for Docker and for a machine with the packaged kernel).
_COST_S, _COST_WITHIN_S = 15.0, 120.0


_NETWORK = "tcp-send, tcp-receive, tcp-latency"

#: Said of each monitor's row: costs that no count shows.
_NOT_IN_COUNTS = "two-level paging, caches and real devices are not in instruction counts"
#: Said of each monitor's row whose work is counted by the unit.
_OF_HOST = (
    "kernel and user a unit: cannot tell less than some thousand instructions, even below zero: the host's two boots "
    "differ by millions elsewhere. guest a unit is exact"
)


def machine_tests(job: BenchJob, *, inside: bool = False) -> list[BenchTest]:
    """Return the counted tests of a job's suites. Their cost is that of an average row. `inside`: there will be a
    machine around its engines."""
    own = len(job.machines)
    within = sum(len(job.inside_runtimes) + len(one.monitors) for one in job.insides) or len(job.inside_runtimes)
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
    if SuiteName.EFFICIENCY in job.suites and (inside or job.insides):
        found += [
            BenchTest(SuiteName.EFFICIENCY, test, variant=CLOCK, cost=2 * cost_s, warm_up=False) for test in WITHIN_WORK
        ]
    if SuiteName.MEMORY in job.suites and (inside or job.insides):
        found += growth_boot.tests(job)
    return [test for test in found if not job.only or test.test in job.only]


def timed_too(test: BenchTest) -> bool:
    """Return whether machines with KVM are timed in a test: a start, or work of one processor."""
    if test.suite == SuiteName.STARTUP:
        return test.test == "report" and test.variant == "warm"
    return test.suite == SuiteName.UNIXBENCH and test.variant == f"{OURS}, {ONE_COPY}, {ONE_CORE}" and test.count == 1


def cannot_tell(job: BenchJob) -> list[str]:
    """Return in words what is not measured of machines, and of engines within one, and why."""
    counted = (SuiteName.STARTUP, SuiteName.UNIXBENCH)
    within = (*counted, SuiteName.EFFICIENCY, SuiteName.MEMORY)
    found = []
    for inside in job.insides:
        name = inside.machine.name
        found += [
            f"{name}/…: {suite}: cannot tell: what runs within a machine is counted, not timed"
            for suite in job.suites
            if suite not in within
        ]
        if SuiteName.MEMORY in job.suites:
            found.append(f"{name}/…: memory least: cannot tell: each start of the search would be a boot")
            found += [
                f"{name}/{one.name}: memory: cannot tell: what its machines take is the size that they are given"
                for one in inside.monitors
            ]
        if SuiteName.EFFICIENCY in job.suites:
            found.append(f"{name}/…: efficiency {_NETWORK}: cannot tell: no network is made within the machine")
        if SuiteName.UNIXBENCH in job.suites and not job.at_once:
            found.append(f"{name}/…: unixbench dhry2reg, whetstone-double: cannot tell on the instruction clock")
        by_unit = SuiteName.EFFICIENCY in job.suites or (SuiteName.UNIXBENCH in job.suites and not job.at_once)
        words = (_NOT_IN_COUNTS, _OF_HOST) if by_unit else (_NOT_IN_COUNTS,)
        found += [f"{name}/{one.name}: {text}" for one in inside.monitors for text in words]
        if SuiteName.UNIXBENCH in job.suites and job.at_once:
            found += [
                f"{name}/{one.name}: unixbench: cannot tell: instances at once are an engine's"
                for one in inside.monitors
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
        if isinstance(machine, GuestEngine):
            return machine.start([BENCH, "report"])
        return started(machine.run([BENCH, "report"]), machine.subsystems, machine.starts)
    work = work_of(test)
    return per_unit(machine.run(work.less), machine.run(work.more), work.units, machine.subsystems, machine.work)
