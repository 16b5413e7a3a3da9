# SPDX-License-Identifier: Apache-2.0
"""A bundle read back: its record, and the machine that it describes."""

from __future__ import annotations

from pathlib import Path

from vmtailor.base import records
from vmtailor.base.errors import UserInputError
from vmtailor.model.bundle import RECORD, Bundle
from vmtailor.model.machine import Accelerator, Clock, Disk, Machine


def load_bundle(folder: Path) -> Bundle:
    """The record of a bundle; UserInputError when it is none, or a file of it is missing."""
    if not (folder / RECORD).is_file():
        raise UserInputError(f"{folder} is no bundle", hint="vmtailor fit IMAGE -o FOLDER makes one")
    bundle = records.load(Bundle, folder / RECORD)
    for name in (bundle.kernel, bundle.root):
        if not (folder / name).is_file():
            raise UserInputError(f"the bundle {folder} lacks its file {name}", hint="fit the image again")
    return bundle


def machine_of(folder: Path, bundle: Bundle, *, accelerator: Accelerator, memory_bytes: int | None = None) -> Machine:
    """The bundle's machine on the wall clock."""
    return Machine(
        kind=bundle.machine,
        memory_bytes=memory_bytes or bundle.memory_bytes,
        kernel=str((folder / bundle.kernel).absolute()),
        append=bundle.words,
        disks=(Disk(str((folder / bundle.root).absolute())),),
        cpus=bundle.cpus,
        cpu_model="host" if accelerator is Accelerator.KVM else "max",
        clock=Clock.WALL,
        accelerator=accelerator,
    )
