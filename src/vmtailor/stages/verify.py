# SPDX-License-Identifier: Apache-2.0
"""Stage verify: run the exercise on the built machine, and compare with the trace."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vmtailor.analysis.demands import container_calls, degradation, harmless_absences
from vmtailor.analysis.guests import boots, kernel_complaints
from vmtailor.analysis.guests.varying_output import Output
from vmtailor.booting import given_environment
from vmtailor.booting.booter import boot
from vmtailor.drivers.host import host_client
from vmtailor.drivers.monitors import monitors
from vmtailor.model.boots.ending import Gathered
from vmtailor.model.boots.workload import FIXED_KEY, NETWORK, Exercised, Patience, Run
from vmtailor.model.exercise import Exercise, ReadyKind
from vmtailor.model.image import ImageConfig
from vmtailor.model.machine import Clock, Machine, PublishedPort
from vmtailor.model.syscalls import SyscallEvent
from vmtailor.model.trace import Trace
from vmtailor.model.trial import Verification

#: Host seconds a boot of a tailored machine may take beside what the exercise itself allows.
BOOT_S = 180.0


@dataclass(frozen=True)
class Target:
    """A container to verify. `machine`: has the tailored kernel, and the root as its first disk. `tools`: the tracer's
    volume. `network`: the machine has a network device, so published ports are tried from the host."""

    machine: Machine
    image: ImageConfig
    exercise: Exercise
    tools: Path
    network: bool


def patience(trace: Trace, slowness: float = 1.0) -> Patience:
    """Return the limits of the boot with every call seen, on a monitor that is so many times as slow. On the
    instruction clock, where nothing waits, they come from the baseline's processor time for the same work. A kernel
    that lacks something may loop or stand still for ever, and a search for the missing symbol meets many of those."""
    baseline_s = trace.requests_boot.seconds if trace.requests_cpu_s is None else trace.requests_cpu_s
    return Patience.after(slowness * baseline_s)


def verify(target: Target, trace: Trace, events: Sequence[SyscallEvent], scratch: Path) -> Verification:
    """Boot twice: once with every call seen, compared with the trace's `events`, and once as it will be used. The
    second boot also asks published ports from the host; it is skipped when the first has failed."""
    run = Run(exercise=target.exercise, key=FIXED_KEY)
    slowness = monitors.of(target.machine).slowness
    most_s = slowness * (BOOT_S + 4 * target.exercise.ready.timeout_s)
    patient = patience(trace, slowness)
    work = Exercised(run, most_s, tools=target.tools).unhurried(target.machine.clock, patient)
    found, seen = boot(target.machine, work, scratch)
    log = container_calls.read(seen.requests, container_calls.phases(seen.report))
    degraded, absent = harmless_absences.split(degradation.newly_failing(events, log.events))
    said = boots.complaints(seen, target.machine.architecture)
    # Nothing printed is nothing known: a record of before may lack it.
    again = (trace.coverage_boot.container.stdout or None) if trace.coverage_boot.container is not None else None
    complaints = tuple(kernel_complaints.new_lines(said, trace.kernel_warnings, kernel_complaints.expected_messages()))
    failures = [
        *found.failures,
        *boots.differences(trace.requests_report, seen.report, target.exercise, again),
        *(f"{call.name}({call.arguments}) newly fails with {call.error}" for call in degraded),
        *(f"the kernel complains: {line}" for line in complaints),
    ]
    needs = tuple(n for n in [seen.report.fatal.symbol] if n) if seen.report.fatal else ()
    last = seen
    if not failures:
        work = Exercised(run, most_s)
        last, failures = _as_used(target, work, scratch, container_calls.tcp_ports(events))
    evidence = boots.evidence(last, failures) if failures else ""
    return Verification(
        failures=tuple(dict.fromkeys(failures)),
        degraded=degraded,
        needs=needs,
        complaints=complaints,
        evidence=evidence,
        absent=absent,
        varying=_varying(trace, again, target.exercise),
    )


def _varying(trace: Trace, again: str | None, exercise: Exercise) -> tuple[str, ...]:
    """Return what the program prints otherwise in each run, where its output is compared at all."""
    if again is None or exercise.ready.kind is not ReadyKind.EXIT:
        return ()
    return Output(trace.requests_report.stdout, again).varying()


def _as_used(
    target: Target, work: Exercised, scratch: Path, ports_listened_on: Collection[int]
) -> tuple[Gathered, list[str]]:
    """Return a boot as it will be used: what it left, and what was wrong."""
    machine = replace(target.machine, clock=Clock.WALL)
    if not target.network:
        found, gathered = boot(machine, work, scratch)
        return gathered, list(found.failures)
    # An image may expose thousands: those that nobody asks, and nothing listens on, are not tried.
    tried = host_client.ports_asked(target.exercise) | set(ports_listened_on)
    ports = tuple(
        PublishedPort("127.0.0.1", host_client.free_port(), port.number)
        for port in target.image.exposed_ports
        if port.protocol == "tcp" and port.number in tried
    )
    machine = replace(machine, network=True, ports=ports)
    run = replace(work.run, network=NETWORK, hold=bool(ports))
    answers: list[str] = []

    def ask() -> None:
        where = {port.guest_port: port.host_port for port in ports}
        answers.extend(host_client.wrong_answers(target.exercise, where, ports_listened_on))

    found, gathered = boot(machine, replace(work, run=run, at_load=ask if ports else None), scratch)
    hidden = given_environment.given().hidden
    return gathered, [*found.failures, *map(hidden.text, answers)]
