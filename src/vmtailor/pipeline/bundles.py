# SPDX-License-Identifier: Apache-2.0
"""A bundle read back: its record, and the machine that it describes."""

from __future__ import annotations

from pathlib import Path

from vmtailor.base.cache.store import Store
from vmtailor.drivers.host import bundle_folder
from vmtailor.model.architecture import named
from vmtailor.model.bundle import Bundle
from vmtailor.model.machine import Accelerator, Clock, Disk, Machine


def load_bundle(folder: Path) -> Bundle:
    """The record of a bundle; UserInputError when it is none, says what no fit says, or a file of it is missing."""
    return bundle_folder.load(folder).bundle


def machine_of(
    folder: Path,
    bundle: Bundle,
    *,
    accelerator: Accelerator,
    memory_bytes: int | None = None,
    store: Store | None = None,
) -> Machine:
    """The bundle's machine on the wall clock. Raises UserInputError, naming the file, when kernel or root are not what
    the record says."""
    files = bundle_folder.BundleFolder(folder.absolute(), bundle, store or Store())
    return Machine(
        kind=bundle.machine,
        memory_bytes=memory_bytes or bundle.memory_bytes,
        kernel=str(files.file(bundle.kernel)),
        append=bundle.words,
        disks=(Disk(str(files.file(bundle.root))),),
        cpus=bundle.cpus,
        cpu_model="host" if accelerator is Accelerator.KVM else named(bundle.architecture).emulator.cpu_model,
        architecture=bundle.architecture,
        clock=Clock.WALL,
        accelerator=accelerator,
    )
