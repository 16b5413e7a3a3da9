# SPDX-License-Identifier: Apache-2.0
"""A bundle read back: its record, and the machine that it describes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from vmtailor.base.cache.store import Store
from vmtailor.base.files import records
from vmtailor.drivers.host import bundle_folder
from vmtailor.drivers.host.bundle_folder import RECORD_BYTES, BundleFolder
from vmtailor.model.architecture import named
from vmtailor.model.bundle import IMAGE, Bundle
from vmtailor.model.image import Image
from vmtailor.model.machine import Accelerator, Clock, Disk, Machine

#: How the cache names folders.
_KEY = re.compile(r"[0-9a-f]{40}")


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
        board=bundle.machine,
        memory_bytes=memory_bytes or bundle.memory_bytes,
        kernel=str(files.file(bundle.kernel)),
        words=bundle.words,
        disks=(Disk(str(files.file(bundle.root))),),
        cpus=bundle.cpus,
        cpu_model="host" if accelerator is Accelerator.KVM else named(bundle.architecture).emulator.cpu_model,
        architecture=bundle.architecture,
        clock=Clock.WALL,
        accelerator=accelerator,
    )


def cached_image(files: BundleFolder, store: Store) -> Image | None:
    """The image of a bundle as the cache has it, or None. The bundle says under which key it would be there; it is
    taken when it is the image of the bundle's digest."""
    if not files.lists(IMAGE):
        return None
    said = records.from_bytes(Image, files.data(IMAGE, RECORD_BYTES), str(files.path / IMAGE))
    key = Path(said.archive).parent.name
    folder = store.path("image", key)
    if not _KEY.fullmatch(key) or not (folder / "image.json").is_file():
        return None
    kept = records.load(Image, folder / "image.json")
    if kept.digest != files.bundle.image_digest or kept.archive_sha256 != said.archive_sha256:
        return None
    store.used(folder / kept.archive)
    return replace(kept, archive=str((folder / kept.archive).absolute()))
