# SPDX-License-Identifier: Apache-2.0
"""Boots of a system with an init of its own from its disk, driven by its exercise. The disk is never written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from vmtailor.analysis.guests import attended_boots as judging
from vmtailor.analysis.guests import machine_variants, system_messages
from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import temporary
from vmtailor.base.natives import Natives
from vmtailor.base.text import plain, plural
from vmtailor.booting import series_run
from vmtailor.booting.boot_counter import Counting
from vmtailor.booting.booter import OnProgress, boot
from vmtailor.drivers.guest import attendant_volume, guest_programs
from vmtailor.drivers.guest.attendant_volume import SystemRoot
from vmtailor.drivers.rootfs import boot_disk as disks
from vmtailor.model.architecture import Architecture, named
from vmtailor.model.boots.boot import Boot
from vmtailor.model.boots.counters import Counters, CountingConfig, CountingMode
from vmtailor.model.boots.ending import Gathered
from vmtailor.model.boots.series import BootSeries
from vmtailor.model.boots.system_exercise import SystemExercise, SystemReadyKind
from vmtailor.model.boots.workload import FIXED_KEY, Attended, Workload
from vmtailor.model.machine import Clock, Machine
from vmtailor.model.systems.system import System
from vmtailor.pipeline.systems import mapped_root, subjects, system_kernel
from vmtailor.stages.boot import own_kernel
from vmtailor.stages.system_files import OpenedSystem

#: Place of a system's own kernel, in the folder of its boots.
OWN = "own-kernel"
#: Complaints that are told.
_MOST_NOTES = 10


@dataclass(frozen=True)
class ExercisedBoots:
    """The boots of an exercised system. `notes`: the system's own remarks that are no failures, in sentences.
    `counters`: of each boot, where something was counted."""

    series: BootSeries
    notes: tuple[str, ...]
    counters: tuple[Counters, ...] = ()


class _Noting:
    """Boots, and notes which units the system calls failed, and what it complains of where the exercise asks it."""

    def __init__(self, natives: Natives, counted: CountingConfig | None) -> None:
        self._natives = natives
        self._counted = counted
        self.counters: list[Counters] = []
        self.failed: dict[str, int] = {}
        self.said: dict[str, str] = {}
        self.boots = 0

    def __call__(
        self, machine: Machine, workload: Workload, scratch: Path, *, on_progress: OnProgress | None = None
    ) -> tuple[Boot, Gathered]:
        settled = None
        if machine.clock is Clock.INSTRUCTIONS:
            # The plugin lets disks finish before the guest goes on: its time would depend on the host's otherwise.
            config = CountingConfig(mode=CountingMode.COVERAGE, architecture=machine.architecture)
            settled = Counting(self._natives, self._counted or config)
        found, gathered = boot(machine, workload, scratch, counting=settled, on_progress=on_progress)
        self.boots += 1
        if self._counted is not None and gathered.counters is not None:
            self.counters.append(gathered.counters)
        for name in judging.failed_units(gathered.report):
            self.failed[name] = self.failed.get(name, 0) + 1
        for text in system_messages.complaints(gathered.report):
            self.said.setdefault(system_messages.shape(text), text)
        return found, gathered

    @property
    def notes(self) -> tuple[str, ...]:
        names = ", ".join(plain(name)[:100] for name in list(self.failed)[:20])
        failed = (f"{plural(len(self.failed), 'unit', 'units')} failed: {names}",) if self.failed else ()
        said = [plain(text)[:300] for text in self.said.values()]
        more = (f"and {len(said) - _MOST_NOTES} more",) if len(said) > _MOST_NOTES else ()
        return (*failed, *said[:_MOST_NOTES], *more)


def exercised(
    reference: str,
    exercise: SystemExercise | Callable[[System], SystemExercise],
    choose: Callable[[Architecture], Machine],
    out: Path,
    *,
    times: int,
    timeout_s: float,
    store: Store,
    partition: int | None = None,
    on_boot: series_run.OnBoot | None = None,
    sample_ms: int = 0,
    counted: CountingConfig | None = None,
) -> ExercisedBoots:
    """Boot `times` times. `choose`: gives the machine for a processor, without the system's disk; without a kernel it
    gets the system's own, with its loader's words. `exercise`: or what gives one for a system. `sample_ms`:
    between two samples of the machine's figures, which are kept beside each boot's console; 0 for none. `counted`: what
    is counted on the instruction clock; None for nothing.

    Raises UserInputError for a subject or an exercise that cannot be used, HostError where a processor's emulator or
    compiler is missing."""
    path = subjects.disk_path(reference)
    if path is None:
        raise UserInputError(f"{reference} is not a disk", hint="systems are booted from disks: disk:FILE")
    with subjects.opened(reference, store, partition=partition) as found:
        subject = found.subject
        exercise = exercise(subject) if callable(exercise) else exercise
        natives = guest_programs.of(subject.architecture)
        chosen = choose(named(subject.architecture))
        _require_inside(exercise, chosen.clock)
        require_port(chosen)
        machine = _with_kernel(chosen, found, natives, out) if chosen.kernel is None else chosen
    machine = replace(
        machine, architecture=subject.architecture, disks=(disks.disk_of(path), *machine.disks),
        ports=machine_variants.on_loopback(exercise.ports),
    )  # fmt: skip
    root = root_of(subject, machine.words)
    return driven(
        reference, machine, root, exercise, natives, out, times=times, timeout_s=timeout_s, on_boot=on_boot,
        sample_ms=sample_ms, counted=counted,
    )  # fmt: skip


def driven(
    reference: str,
    machine: Machine,
    root: SystemRoot,
    exercise: SystemExercise,
    natives: Natives,
    out: Path,
    *,
    times: int,
    timeout_s: float,
    on_boot: series_run.OnBoot | None = None,
    sample_ms: int = 0,
    counted: CountingConfig | None = None,
) -> ExercisedBoots:
    """Boot a machine with its system's disk `times` times, as `exercised` does. `root`: the place of the system."""
    with temporary.held_folder() as folder:
        volume = folder / "attendant"
        attendant_volume.write(volume, natives, root, exercise, FIXED_KEY, sample_ms=sample_ms)
        noting = _Noting(natives, counted)
        work = Attended(exercise, volume, FIXED_KEY, timeout_s, sample_ms=sample_ms)
        schedule = series_run.in_turn([series_run.variant("base", machine)], times)
        made = series_run.run(reference, schedule, work, out, booter=noting, on_boot=on_boot)
    return ExercisedBoots(made, noting.notes, tuple(noting.counters))


def _require_inside(exercise: SystemExercise, clock: Clock) -> None:
    """Raise UserInputError for an exercise that waits for the host, on the clock that does not."""
    if clock is Clock.INSTRUCTIONS and (exercise.host_steps or exercise.ready.kind is SystemReadyKind.LOG):
        raise UserInputError(
            f"{exercise.origin} waits for the host (a step from outside, a line of the console), and the instruction "
            "clock does not: an idle guest runs ahead",
            hint="--clock wall, or an exercise that asks from inside",
        )


def require_port(machine: Machine) -> None:
    """Raise UserInputError for a machine without the port that drives a system."""
    if not machine.hardware.second_port:
        raise UserInputError(
            f"the machine {machine.board} has one serial port, and a system is driven through a second one",
            hint="boot it without --exercise: --kernel, --initrd, --append, --ready",
        )


def _with_kernel(chosen: Machine, found: OpenedSystem, natives: Natives, out: Path) -> Machine:
    own = own_kernel.taken_out(found.subject, found.root, natives.small_init, out / OWN)
    architecture = named(found.subject.architecture)
    words = tuple(word for word in own.words if word != "quiet")
    serial = any(system_kernel.is_serial(word, architecture) for word in words)
    more = () if serial else (f"console={architecture.kernel.console}",)
    if not mapped_root.has_initrd(found.subject):
        more = (*more, *mapped_root.words_of(found.subject))
    return replace(
        chosen,
        kernel=str(own.kernel.absolute()),
        initrd=str(own.initrd.absolute()),
        words=(*words, *more, *chosen.words),
    )


def root_of(subject: System, words: tuple[str, ...]) -> SystemRoot:
    """Return the place of a system's root in its machine: on its first virtio disk. `words`: the kernel's."""
    assert subject.disk is not None
    device = mapped_root.device_of(subject, direct=mapped_root.is_direct(words))
    return SystemRoot(device, subject.disk.root_type, "rw" in words, subject.init.path)
