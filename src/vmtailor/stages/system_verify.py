# SPDX-License-Identifier: Apache-2.0
"""Stage verify for a system with an init of its own: run its exercise on a machine, and judge it by the results of the
same exercise and the system's messages on the baseline."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vmtailor.analysis.cost.plugin_counts import SymbolTable
from vmtailor.analysis.guests import attended_boots, kernel_complaints, machine_variants, system_messages
from vmtailor.analysis.guests.boots import differences, marks_at
from vmtailor.analysis.guests.system_losses import degraded, new_complaints
from vmtailor.base.errors import GuestError
from vmtailor.base.natives import Natives
from vmtailor.booting.boot_counter import Counting
from vmtailor.booting.booter import boot
from vmtailor.drivers.guest import attendant_volume
from vmtailor.drivers.guest.attendant_volume import MODULES, USUAL, SystemRoot
from vmtailor.model.boots.boot import Boot
from vmtailor.model.boots.counters import CountingConfig, CountingMode
from vmtailor.model.boots.ending import Gathered
from vmtailor.model.boots.system_exercise import Saying, SystemExercise
from vmtailor.model.boots.workload import FIXED_KEY, Attended, Patience, Until, Workload
from vmtailor.model.machine import Clock, Machine
from vmtailor.model.trial import Verification
from vmtailor.model.watched.system_run import SystemRun

#: Host seconds that a boot may take beside what the exercise itself allows.
BOOT_S = 900.0
_TAIL_LINES = 40
#: Messages of races that are told.
_MOST_RACES = 8
#: Messages of programs that ask for something outside of their machine.
_NO_NETWORK = re.compile(
    r"network (?:is )?unreachable|no route to host|connection timed out|bad address|could not resolve"
    r"|temporary failure in name resolution|temporary failure resolving|name or service not known",
    re.I,
)


@dataclass(frozen=True)
class SystemTarget:
    """A system to drive. `machine`: has the system on its first disk, with the kernel and the clock to verify by.
    `root`: the place of the system in that machine. `built_in`: names of modules that a fitted kernel has built in."""

    machine: Machine
    root: SystemRoot
    exercise: SystemExercise
    natives: Natives
    built_in: frozenset[str] = frozenset()


def clock_for(exercise: SystemExercise) -> Clock:
    """Return the clock that can drive an exercise. The instruction clock is exact and independent of the host's load,
    but on it a guest does not wait for the host."""
    return Clock.WALL if exercise.host_steps else Clock.INSTRUCTIONS


@dataclass(frozen=True)
class Counts:
    """The counting of a run: every block of the kernel. `table`: the kernel's symbols. `file`: gets the plugin's
    counts."""

    table: SymbolTable
    file: Path


def workload(
    target: SystemTarget, folder: Path, *, until: Until = Until.SHUTDOWN, reports: Sequence[Saying] = USUAL
) -> Attended:
    """Return the workload that drives a system. Its attendant's disk is written into `folder`. `until`: the point to
    reach; the load belongs only to the whole exercise. `reports`: questions at the end."""
    exercise = replace(target.exercise, load=()) if until is not Until.SHUTDOWN else target.exercise
    volume = folder / f"attendant-to-{until}"
    attendant_volume.write(volume, target.natives, target.root, exercise, FIXED_KEY, reports)
    all_s = BOOT_S + exercise.ready.timeout_s + len(exercise.load) * exercise.step_timeout_s + exercise.stop_timeout_s
    return Attended(exercise, volume, FIXED_KEY, all_s, until=until)


def run(
    target: SystemTarget,
    scratch: Path,
    patience: Patience | None = None,
    *,
    until: Until = Until.SHUTDOWN,
    counts: Counts | None = None,
) -> SystemRun:
    """Run the exercise once, or as far as `until`. Nothing that the system writes is kept. `counts` applies on the
    instruction clock, and changes nothing of what happens there."""
    machine = (
        target.machine if target.machine.clock is Clock.INSTRUCTIONS else machine_variants.with_time(target.machine)
    )
    reports = USUAL if counts is None else (*USUAL, MODULES)
    work = workload(target, scratch, until=until, reports=reports).unhurried(machine.clock, patience)
    found, gathered = booter(target.natives, counts)(machine, work, scratch)
    if counts is not None and gathered.counts:
        counts.file.write_bytes(gathered.counts)
    return SystemRun(found, gathered.report, _words(found, gathered))


def booter(
    natives: Natives, counts: Counts | None = None
) -> Callable[[Machine, Workload, Path], tuple[Boot, Gathered]]:
    """Return a booter that boots as `run` does, on the machine's clock."""

    def booted(machine: Machine, work: Workload, scratch: Path) -> tuple[Boot, Gathered]:
        return boot(machine, work, scratch, counting=_settled(machine, natives, counts))

    return booted


def baseline(target: SystemTarget, scratch: Path, counts: Counts | None = None) -> SystemRun:
    """Run the exercise on the system's own kernel. Raises GuestError when it does not pass there."""
    found = run(target, scratch, counts=counts)
    if found.boot.failures:
        raise GuestError(
            f"the system does not pass its exercise on its own kernel: {found.boot.problem}",
            hint=_hint(found.boot.failures),
            details=found.words,
        )
    silent = [one.name for one in target.exercise.says if one.name not in system_messages.asked(found.report)]
    if silent:
        raise GuestError(
            f"{', '.join(silent)} cannot be asked: the system has no such program",
            hint="name one that it has in [[says]] of the exercise, or leave it out",
            details=found.words,
        )
    return found


def _hint(failures: tuple[str, ...]) -> str:
    if any(_NO_NETWORK.search(text) for text in failures):
        return (
            "a guest reaches nothing outside of its machine: let the exercise ask for what is in the system (its own "
            "server over loopback, files, images that it has)"
        )
    return "mend the system or the exercise first: a machine can only be fitted to a system that works"


def verify(target: SystemTarget, before: SystemRun, scratch: Path) -> Verification:
    """Run the exercise on the tailored machine, and judge it and the system's messages against the baseline's run."""
    return judge(target, before, run(target, scratch, patience_after(before)))


def verify_again(target: SystemTarget, before: SystemRun, first: Verification, scratch: Path) -> Verification:
    """Run the exercise once more on a machine that failed. On the instruction clock the same machine would do the same:
    a word that means nothing moves its timing. A message that only one of both runs has is one of a race, and no
    failure; whatever does not work in the second run is."""
    moved = next(iter(machine_variants.controls(target.machine)), target.machine)
    after = run(replace(target, machine=moved), scratch, patience_after(before))
    found = judge(target, before, after)
    if after.boot.failures or differences(before.report, after.report, target.exercise.inside()):
        return found
    once = {system_messages.shape(text): text for text in first.failures}
    again = {system_messages.shape(text): text for text in found.failures}
    lasting = tuple(text for shape, text in again.items() if shape in once)
    races = [text for shape, text in {**again, **once}.items() if (shape in once) != (shape in again)]
    evidence = found.evidence if lasting else ""
    return replace(found, failures=lasting, evidence=evidence, races=tuple(races[:_MOST_RACES]))


def patience_after(before: SystemRun) -> Patience | None:
    """Return the limits of a machine that does the same as the baseline; None when the baseline's resources are not
    known."""
    return None if before.boot.cpu_s is None else Patience.after(before.boot.cpu_s)


def judge(target: SystemTarget, before: SystemRun, after: SystemRun) -> Verification:
    """Judge a machine by a run, against the baseline's run."""
    expected = kernel_complaints.expected_messages(target.built_in)
    failures = (
        *after.boot.failures,
        *differences(before.report, after.report, target.exercise.inside()),
        *degraded(before, after, expected),
    )
    needs = tuple(n for n in [after.report.fatal.symbol] if n) if after.report.fatal else ()
    complaints = tuple(new_complaints(before, after, expected))
    return Verification(
        tuple(dict.fromkeys(failures)), needs=needs, complaints=complaints, evidence=after.words if failures else ""
    )


def _settled(machine: Machine, natives: Natives, counts: Counts | None) -> Counting | None:
    """Return the counting in which the plugin waits for disks, on the instruction clock: otherwise the guest's time
    would depend on the host's disks."""
    if machine.clock is not Clock.INSTRUCTIONS:
        return None
    if counts is None:
        return Counting(natives, CountingConfig(mode=CountingMode.COVERAGE, architecture=machine.architecture))
    marks = marks_at(counts.table, natives.attendant_marks())
    return Counting(natives, CountingConfig(marks=marks, architecture=machine.architecture))


def _words(found: Boot, gathered: Gathered) -> str:
    """Return the words of an error: the failure, the console's last lines, and the command to see it again."""
    lines = [line for _, line in gathered.lines[-_TAIL_LINES:]]
    units = attended_boots.failed_units(gathered.report)
    parts = [*found.failures, *(f"unit {name} failed" for name in units)]
    parts += ["--- console:", *lines] if lines else []
    parts += [f"--- machine, ended after {gathered.end.seconds:.1f} s:", gathered.end.stderr, gathered.end.command]
    return "\n".join(part for part in parts if part)
