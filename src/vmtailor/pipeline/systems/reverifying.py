# SPDX-License-Identifier: Apache-2.0
"""`verify` of a system's bundle: its exercise on its machine, on this host, held against what the same exercise did on
the system's own kernel when it was fitted; on the bundle's own disk, or on another one.

A bundle may be somebody else's, and so may a disk: see pipeline/reverify.py for which programs are run on the host."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from typing import TypeVar

from vmtailor.analysis.guests import kernel_log, machines
from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import records, temporary
from vmtailor.base.words.text import plain
from vmtailor.booting.bundle import MOST_TABLE_BYTES
from vmtailor.drivers.guest import guest_programs
from vmtailor.drivers.guest.attendant_volume import SystemRoot
from vmtailor.drivers.host import bundle_folder, bundle_values
from vmtailor.drivers.host.bundle_folder import RECORD_BYTES, BundleFolder
from vmtailor.drivers.qemu.accelerator import best_accelerator
from vmtailor.drivers.rootfs import disk as disks
from vmtailor.model.architecture import named
from vmtailor.model.boots.system_exercise import SystemExercise
from vmtailor.model.bundle import SYSTEM, SYSTEM_EXERCISE, SYSTEM_RUN
from vmtailor.model.exercise import StepKind
from vmtailor.model.machine import Accelerator, Clock, Disk, Machine
from vmtailor.model.systems.subject import System
from vmtailor.model.trial import Verification
from vmtailor.model.watched.system_run import SystemRun
from vmtailor.pipeline.bundles import machine_of
from vmtailor.pipeline.reverify import VerifyRequest, require_clock
from vmtailor.pipeline.subject import scratch_of
from vmtailor.pipeline.systems import exercising, running, subjects
from vmtailor.stages import exercise_file, system_verify
from vmtailor.stages.system_verify import SystemTarget

R = TypeVar("R")


@dataclass(frozen=True)
class PreparedSystem:
    """A bundle that was read and may be booted. `before`: the run on the system's own kernel; `disk`, `root`: what is
    started; `clock`: that of the request, unless a program on the host drives the system, for which no guest on the
    instruction clock waits. `runs`, `skipped`: as in reverify.Prepared."""

    request: VerifyRequest
    files: BundleFolder
    exercise: SystemExercise
    before: SystemRun
    disk: Disk
    root: SystemRoot
    clock: Clock
    runs: tuple[str, ...]
    skipped: tuple[str, ...]


def prepare(request: VerifyRequest, store: Store | None = None) -> PreparedSystem:
    """Read the bundle of a system, and decide which programs of its exercise are run on the host. Starts nothing.

    Raises UserInputError for a bundle that is damaged, for an exercise file that asks other things than the bundle's,
    and for a disk that holds no such system."""
    require_clock(request)
    files = bundle_folder.load_any(request.bundle, store)
    if not files.lists(SYSTEM_RUN):
        raise UserInputError(
            f"the bundle {request.bundle} does not say what its system did on its own kernel",
            hint="fit the system again: what was finished is found",
        )
    exercise, skipped = _exercise(request, files)
    before = _record(SystemRun, files, SYSTEM_RUN)
    bundle_values.require_cpu_s(before.boot.cpu_s, files.path / SYSTEM_RUN)
    subject = _record(System, files, SYSTEM)
    disk = running.disk_of(files)
    if request.disk is not None:
        disk = disks.disk_of(request.disk)
        with subjects.opened(f"{subjects.DISK}{request.disk}", files.store) as found:
            subject = found.subject
    if subject.architecture != files.bundle.architecture:
        wanted = named(files.bundle.architecture).title
        raise UserInputError(f"{subject.reference} is no system for {wanted}", hint="give a disk of the same system")
    runs = _host_commands(exercise)
    clock = Clock.WALL if runs else request.clock
    root = _root(subject, files)
    return PreparedSystem(request, files, exercise, before, disk, root, clock, runs, skipped)


def verify_prepared(prepared: PreparedSystem) -> Verification:
    """The exercise on the bundle's machine, judged as when it was fitted. Nothing is written to the disk."""
    bundle, natives = prepared.files.bundle, guest_programs.of(prepared.files.bundle.architecture)
    symbols = prepared.files.data(bundle.system_map, MOST_TABLE_BYTES).decode(errors="replace")
    built_in = kernel_log.built_in_modules(symbols)
    target = SystemTarget(_machine(prepared), prepared.root, prepared.exercise, natives, built_in)
    with temporary.held_folder(scratch_of(prepared.files.store)) as scratch:
        found = system_verify.verify(target, prepared.before, scratch)
    return replace(found, skipped=prepared.skipped)


def _machine(prepared: PreparedSystem) -> Machine:
    request, files, bundle = prepared.request, prepared.files, prepared.files.bundle
    counting = prepared.clock is Clock.INSTRUCTIONS
    accelerator = Accelerator.TCG if counting else request.accelerator
    accelerator = accelerator or best_accelerator(bundle.architecture, files.store)
    machine = machine_of(files.path, bundle, accelerator=accelerator, store=files.store)
    machine = replace(machine, clock=prepared.clock, disks=(prepared.disk,), network=bundle.network)
    return replace(machine, ports=machines.on_loopback(prepared.exercise.ports))


def _record(kind: type[R], files: BundleFolder, name: str) -> R:
    return records.from_bytes(kind, files.data(name, RECORD_BYTES), str(files.path / name))


def _exercise(request: VerifyRequest, files: BundleFolder) -> tuple[SystemExercise, tuple[str, ...]]:
    """What is asked, and which programs of the host that leaves out."""
    own = _record(SystemExercise, files, SYSTEM_EXERCISE)
    bundle_values.require_system_exercise(own, files.path / SYSTEM_EXERCISE)
    if request.exercise is not None:
        given = exercise_file.load_system(request.exercise)
        if replace(_in_guest(given), origin="") != replace(_in_guest(own), origin=""):
            raise UserInputError(
                f"{request.exercise} asks the system other things than the exercise that {request.bundle} was fitted "
                "with, so there is nothing to compare its answers with",
                hint="give the file that the bundle was fitted with, or fit the system again with this one",
            )
        return given, ()
    if request.trust_host_commands:
        return own, ()
    return _in_guest(own), _host_commands(own)


def _in_guest(exercise: SystemExercise) -> SystemExercise:
    return replace(exercise, load=tuple(step for step in exercise.load if step.kind is not StepKind.HOST_COMMAND))


def _host_commands(exercise: SystemExercise) -> tuple[str, ...]:
    return tuple(plain(shlex.join(step.argv)) for step in exercise.host_steps)


def _root(subject: System, files: BundleFolder) -> SystemRoot:
    """Where the system is in its machine. Raises UserInputError for a record that names no place of a root."""
    path, where = subject.init.path, files.path / SYSTEM
    placed = subject.disk is not None and 0 <= subject.disk.root <= 256
    if not placed or not path.startswith("/") or "\0" in path or len(path) > 4095:
        raise UserInputError(f"{where} does not say where the system is", hint="fit the system again")
    return exercising.root_of(subject, files.bundle.words)
