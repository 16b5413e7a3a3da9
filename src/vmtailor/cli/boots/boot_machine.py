# SPDX-License-Identifier: Apache-2.0
"""`vmtailor boot` of a disk or a kernel: boot, sample, attribute and try changes, or drive a system by an exercise."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from vmtailor.analysis.changes import choice, trial_hardware
from vmtailor.analysis.guests import machine_variants
from vmtailor.base import output
from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import regular_files
from vmtailor.base.progress import step
from vmtailor.booting import series_run
from vmtailor.booting.booter import boot as plain_boot
from vmtailor.booting.instruction_boots import Settled
from vmtailor.cli.boots.boot_output import show_boot_cost, show_series, telling
from vmtailor.drivers.guest import guest_programs
from vmtailor.drivers.guest.ready import FORMS, parse_signal, words_for
from vmtailor.drivers.rootfs import boot_disk as disks
from vmtailor.model.architecture import Architecture, named, of_host
from vmtailor.model.boots.boot_cost import BootCost
from vmtailor.model.boots.series import BootSeries, JudgedBy
from vmtailor.model.boots.workload import Nothing, OwnInit, ReadyBy, ReadySignal
from vmtailor.model.machine import Accelerator, Clock, Disk, Machine
from vmtailor.model.option import OptionSubject, refuse
from vmtailor.pipeline import boot_trials, machine_testbed
from vmtailor.pipeline.options import BOOT_MEMORY, BootOptions
from vmtailor.pipeline.systems import exercise_boots
from vmtailor.stages import exercise_file
from vmtailor.stages.boot import boot_attribution, profile


@dataclass(frozen=True)
class MachineRequest:
    """A requested machine, and the signal that it is waited for."""

    asked: BootOptions
    name: str
    machine: Machine
    workload: OwnInit | Nothing


def boot_machine(asked: BootOptions) -> None:
    """Boot the machine `times` times, try changes on it, or attribute one boot."""
    refuse(asked, OptionSubject.MACHINE, asked.subject or asked.kernel)
    prepared = _prepared(asked)
    if asked.attribute:
        cost = _attributed(prepared)
        show_boot_cost(cost, asked.out, asked.json, prepared.machine.architecture)
    else:
        show_series(_tried(prepared) if asked.changes else _booted(prepared), asked.out, asked.json)


def check_clock(machine: Machine) -> None:
    """Raise UserInputError where instructions were asked for on a machine that does not count them."""
    if machine.clock is Clock.INSTRUCTIONS and (machine.cpus > 1 or machine.accelerator is Accelerator.KVM):
        raise UserInputError("the instruction clock needs one CPU and TCG")


def _prepared(asked: BootOptions) -> MachineRequest:
    line = list(asked.append)
    for wanted in signals(asked):
        line += [word for word in words_for(wanted) if word not in line]
    row = named(asked.arch) if asked.arch else of_host()
    workload = workload_of(asked)
    machine = replace(
        machine_variants.usual(row), board=row.board_named(asked.machine or row.usual).name,
        memory_bytes=asked.memory_bytes or BOOT_MEMORY, cpus=asked.cpus or 1, kernel=existing(asked.kernel),
        initrd=existing(asked.initrd), words=tuple(line), disks=_disks(asked),
        ports=machine_variants.on_loopback(workload.ports), cpu_model=asked.cpu_model or row.emulator.cpu_model,
        accelerator=asked.accelerator, clock=asked.clock, extras=asked.qemu,
    )  # fmt: skip
    _check(machine, asked.sample)
    if isinstance(workload, Nothing) and (asked.sample or asked.changes):
        raise UserInputError("--sample and --try need a moment to be ready at", hint=f"--ready {FORMS}")
    if asked.clock is Clock.INSTRUCTIONS:
        # Nothing from outside may differ: no entropy of the host's, addresses as linked.
        machine = machine_variants.countable(machine)
    return MachineRequest(asked, str(asked.subject or asked.kernel), machine, workload)


def _disks(asked: BootOptions) -> tuple[Disk, ...]:
    found = tuple(disks.disk_of(path) for path in ((asked.subject,) if asked.subject else ()) + asked.disks)
    if asked.kernel is None:
        if not found:
            raise UserInputError("nothing to boot", hint="give a disk image, or --kernel")
        if not disks.has_loader(found[0]):
            raise UserInputError(f"{found[0].path} has no boot loader", hint="give --kernel, --initrd and --append")
    return found


def _check(machine: Machine, sample: bool) -> None:
    if sample and (machine.kernel is None or machine.initrd is None):
        raise UserInputError("--sample needs --kernel and --initrd: the collector travels in the initial RAM disk")
    if sample and not machine.hardware.second_port:
        raise UserInputError(f"--sample needs a second serial port, which the machine {machine.board} does not have")
    if machine.kernel is None and machine.words:
        raise UserInputError("--append needs --kernel", hint="a disk's own loader has a command line of its own")
    check_clock(machine)


def _attributed(prepared: MachineRequest) -> BootCost:
    machine, out = prepared.machine, prepared.asked.out
    if machine.kernel is None:
        raise UserInputError("--attribute needs --kernel", hint="give --kernel, --initrd and --append")
    store = Store()
    known = boot_attribution.of_package(Path(machine.kernel), store, machine.architecture)
    return boot_attribution.attributed(
        machine, known, out, natives=guest_programs.of(machine.architecture), store=store,
        timeout_s=prepared.workload.timeout_s,
    )  # fmt: skip


def _booted(prepared: MachineRequest) -> BootSeries:
    asked, machine, workload = prepared.asked, prepared.machine, prepared.workload
    regular_files.make_folder(asked.out)
    if asked.debug_initcalls:
        machine = profile.with_initcalls(machine)
    if asked.sample:
        if isinstance(workload, OwnInit):
            workload = replace(workload, collector=True)
        machine = profile.with_collector(machine, guest_programs.of(machine.architecture).collector, asked.out)
    with step(f"boot {Path(prepared.name).name}") as progress:
        exact = machine.clock is Clock.INSTRUCTIONS
        return series_run.run(
            prepared.name,
            series_run.in_turn([series_run.variant("base", machine)], asked.times),
            workload,
            asked.out,
            booter=Settled(guest_programs.of(machine.architecture)) if exact else plain_boot,
            on_boot=telling(progress, asked.times),
        )


def _tried(prepared: MachineRequest) -> BootSeries:
    asked, machine = prepared.asked, prepared.machine
    wanted = choice.for_machine(asked.changes)
    store, known = Store(), None
    judged_by = asked.judged_by or JudgedBy.READY
    if judged_by.of_load:
        raise UserInputError(f"--judge {judged_by} is for bundles of containers, whose load is counted")
    if judged_by is JudgedBy.INSTRUCTIONS:
        if machine.kernel is None:
            raise UserInputError("judging by instructions needs --kernel")
        known = boot_attribution.of_package(Path(machine.kernel), store, machine.architecture)
    sides = Counter(one.hardware for one in wanted)
    if words := machine_testbed.doubt(machine.clock, judged_by, min(sides.values()), asked.times):
        output.note(words)
    for hardware in filter(None, sides):
        ids = ", ".join(one.change.id for one in wanted if one.hardware == hardware)
        output.note(f"{ids}: both machines {trial_hardware.words_for(hardware)}")
    parts = guest_programs.of(machine.architecture)
    with step(f"try {len(wanted)} changes on {Path(prepared.name).name}") as progress:
        return boot_trials.on_machine(
            prepared.name, machine, prepared.workload, wanted, asked.out, times=asked.times,
            natives=parts, judged_by=judged_by, known=known, store=store,
            on_boot=telling(progress, asked.times),
        )  # fmt: skip


def signals(asked: BootOptions) -> tuple[ReadySignal, ...]:
    """Return the signal that ends the wait, and others that must come too."""
    return tuple(parse_signal(text) for text in (asked.ready, *asked.also))


def workload_of(asked: BootOptions) -> OwnInit | Nothing:
    """Return the workload of a guest that is only waited for. Raises UserInputError for signals that exclude each
    other."""
    ready, *also = signals(asked)
    if ReadyBy.NOTHING not in {signal.by for signal in (ready, *also)}:
        return OwnInit(ready, asked.timeout_s, tuple(also), tuple(_mark(text) for text in asked.marks))
    if ready.by is not ReadyBy.NOTHING or also or asked.marks:
        raise UserInputError(
            "nothing:SECONDS goes without --also and --mark", hint="leave them out: nothing:SECONDS waits for no signal"
        )
    return Nothing(ready.seconds)


def existing(path: Path | None) -> str | None:
    """Return a file's absolute path. Raises UserInputError when it is missing or empty, since a machine would start
    without it."""
    if path is None:
        return None
    if not path.is_file():
        raise UserInputError(f"{path} does not exist or is not a file", hint="name a file that exists")
    if path.stat().st_size == 0:
        raise UserInputError(f"{path} is empty", hint="check the command that made it")
    return str(path.absolute())


def _mark(text: str) -> tuple[str, re.Pattern[str]]:
    name, found, pattern = text.partition("=")
    try:
        if not found or not name or not pattern:
            raise UserInputError(f"--mark {text!r} is not NAME=REGEX")
        return name, re.compile(pattern)
    except re.error as error:
        raise UserInputError(f"--mark {text!r}: {error}") from error


def boot_system(asked: BootOptions, exercise: Path) -> None:
    """Boot a system `times` times, drive it by the exercise and shut it down. Raises UserInputError for options that do
    not apply."""
    refuse(asked, OptionSubject.EXERCISED, asked.subject)
    if asked.subject is None:
        raise UserInputError("--exercise needs a system to drive", hint="vmtailor boot disk:FILE -x FILE")
    if asked.initrd and not asked.kernel:
        raise UserInputError("--initrd needs --kernel", hint="the system's own kernel has its own")
    show_series(_exercised(asked, str(asked.subject), exercise), asked.out, asked.json)


def machine_for(asked: BootOptions, row: Architecture) -> Machine:
    """Return the chosen machine for a system's processor, without the system's disk. Its kernel is None when the system
    brings its own. Raises UserInputError for options that such a machine does not have."""
    if asked.accelerator is Accelerator.KVM and not row.is_host:
        raise UserInputError(f"a machine for {row.title} is emulated on this host", hint="leave --accelerator out")
    machine = replace(
        machine_variants.usual(row), board=row.board_named(asked.machine or row.usual).name, cpus=asked.cpus or 1,
        memory_bytes=asked.memory_bytes or BOOT_MEMORY, kernel=existing(asked.kernel), initrd=existing(asked.initrd),
        words=asked.append, accelerator=asked.accelerator, clock=asked.clock,
        cpu_model=asked.cpu_model or row.emulator.cpu_model,
    )  # fmt: skip
    check_clock(machine)
    return machine_variants.countable(machine) if asked.clock is Clock.INSTRUCTIONS else machine


def _exercised(asked: BootOptions, subject: str, exercise: Path) -> BootSeries:
    with step(f"boot and exercise {Path(subject).name}") as progress:
        found = exercise_boots.exercised(
            subject, exercise_file.load_system(exercise), partial(machine_for, asked), asked.out,
            times=asked.times, timeout_s=asked.timeout_s, store=Store(),
            on_boot=telling(progress, asked.times),
        )  # fmt: skip
    for sentence in found.notes:
        output.note(sentence)
    return found.series
