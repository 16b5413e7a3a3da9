# SPDX-License-Identifier: Apache-2.0
"""`vmtailor boot --exercise`: a system with an init of its own, driven by an exercise."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from vmtailor.analysis.guests import machine_variants
from vmtailor.base import output
from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError
from vmtailor.base.progress import step
from vmtailor.cli.boots.boot_inputs import existing
from vmtailor.cli.boots.boot_machine import check_clock
from vmtailor.cli.boots.boot_output import show_series, telling
from vmtailor.model.architecture import Architecture
from vmtailor.model.boots.series import BootSeries
from vmtailor.model.machine import Accelerator, Clock, Machine
from vmtailor.model.option import OptionSubject, refuse
from vmtailor.pipeline.options import BOOT_MEMORY, BootOptions
from vmtailor.pipeline.systems import exercise_boots


def boot_system(asked: BootOptions, exercise: Path) -> None:
    """Boot a system `times` times, drive it by the exercise and shut it down. Raises UserInputError for options that do
    not apply."""
    refuse(asked, OptionSubject.EXERCISED, asked.subject)
    if asked.subject is None:
        raise UserInputError("--exercise needs a system to drive", hint="vmtailor boot disk:FILE -x FILE")
    if asked.initrd and not asked.kernel:
        raise UserInputError("--initrd needs --kernel", hint="the system's own kernel has its own")
    show_series(_boots(asked, str(asked.subject), exercise), asked.out, asked.json)


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


def _boots(asked: BootOptions, subject: str, exercise: Path) -> BootSeries:
    with step(f"boot and exercise {Path(subject).name}") as progress:
        found = exercise_boots.exercised(
            subject, exercise, partial(machine_for, asked), asked.out, times=asked.times, timeout_s=asked.timeout_s,
            store=Store(), partition=None, on_boot=telling(progress, asked.times),
        )  # fmt: skip
    for sentence in found.notes:
        output.note(sentence)
    return found.series
