# SPDX-License-Identifier: Apache-2.0
"""A system's disk with other files on it: settings of an engine, rules of udev, units. The user's disk is never
written; changes go to a copy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from vmtailor.base.cache.store import digest
from vmtailor.base.errors import UserInputError
from vmtailor.base.files.holes import copy_with_holes
from vmtailor.base.progress import step
from vmtailor.drivers.disks import ext4
from vmtailor.model.machine import Disk, DiskFormat, Machine
from vmtailor.model.plan import RootFormat
from vmtailor.model.systems.tree import NodeKind
from vmtailor.pipeline.systems.driven_system import DrivenSystem

#: Raise it when what is written changes.
_WRITTEN = "1"
#: Bytes that a file may have which is put on a disk.
MOST_BYTES = 64 << 10
_DISK = "disk.raw"


def written(
    system: DrivenSystem, machine: Machine, files: Mapping[str, str | None]
) -> tuple[Machine, Mapping[str, str | None]]:
    """Return the machine with these files on its disk (path → content; None removes the file), and their earlier
    content.

    Raises UserInputError for a file that cannot be put there, and for one whose earlier content is no short text."""
    before = {path: _content(system, path) for path in files}
    if before == files:
        return machine, before
    first, *others = machine.disks
    return replace(machine, disks=(with_files(system, first, files), *others)), before


def _content(system: DrivenSystem, path: str) -> str | None:
    ext4.require_plain(path)
    root = system.found.root
    node = root.node(path)
    if node is None:
        return None
    try:
        if node.kind is NodeKind.FILE and node.size <= MOST_BYTES:
            return root.read(path, MOST_BYTES).decode()
    except UnicodeDecodeError:
        pass
    raise UserInputError(f"{path} of {system.reference} is not a text of at most {MOST_BYTES >> 10} KiB")


def with_files(system: DrivenSystem, disk: Disk, files: Mapping[str, str | None]) -> Disk:
    """Return the user's disk with these files and no other change. One copy is kept for each set of files."""
    opened, layout = system.found.disk, system.system.disk
    assert opened is not None and layout is not None
    if layout.root_volume or layout.root_type != RootFormat.EXT4:
        where = "an LVM volume" if layout.root_volume else layout.root_type
        raise UserInputError(
            f"{', '.join(files)} cannot be changed on {opened.path}: its root is on {where}, which is not written",
            hint="change the file in the system itself, and fit it again",
        )
    start = next((one.start_bytes for one in layout.partitions if one.number == layout.root), 0)

    def fill(folder: Path) -> None:
        made = folder / _DISK
        with step("a copy of the disk, with other files"):
            copy_with_holes(opened.raw.resolve(), made)
            made.chmod(0o600)
            contents = {path: None if text is None else text.encode() for path, text in files.items()}
            ext4.put(made, start, contents, f"the copy of {opened.path}")

    key = digest(_WRITTEN, system.sha256, str(start), repr(sorted(files.items())))
    folder = system.store.get("changed-disk", key, fill)
    return replace(disk, path=str(folder / _DISK), format=DiskFormat.RAW)
