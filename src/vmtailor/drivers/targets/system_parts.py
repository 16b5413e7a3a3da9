# SPDX-License-Identifier: Apache-2.0
"""A system's own disk for an export: its bytes, and its partitions beside those of other loaders.

The disk may be a stranger's: only tools that are shut in read its table, and what is written anew is a table of our
own."""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from vmtailor.base.errors import UserInputError
from vmtailor.drivers.disks import partitions
from vmtailor.drivers.disks.disk_image import open_disk
from vmtailor.drivers.targets import disk_table
from vmtailor.drivers.targets.disk_table import ALIGN, LINUX, SECTOR, SWAP, TYPES, DiskPart
from vmtailor.drivers.targets.target import Export
from vmtailor.model.systems.system import Partition, System, TableKind

#: The first sectors have the table; GPT has 128 entries.
_FIRST, _MOST = 34 * SECTOR, 128
_SWAP_MBR = "82"
_SERIAL = re.compile(r"[0-9A-F]{4}-[0-9A-F]{4}\Z")
_LABEL = re.compile(r"[A-Z0-9_-]{1,11}\Z")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,36}\Z")


@dataclass(frozen=True)
class SystemDisk:
    """A system's disk, open. `raw`: its bytes; `parts`: its partitions; `root`: the one that has the system, which
    fills the disk where that has no table."""

    raw: Path
    size_bytes: int
    table: TableKind
    parts: tuple[Partition, ...]
    root: Partition
    names: dict[int, str]

    @property
    def root_uuid(self) -> str:
        """Return the UUID of the root's partition; empty where the disk has no table."""
        return self.root.partition_uuid if self.table is not TableKind.NONE else ""


@dataclass(frozen=True)
class KeptPart:
    """A partition on the new disk, and the byte of the old one at which its content begins."""

    part: DiskPart
    at: int


@dataclass(frozen=True)
class SystemParts:
    """A system's partitions on a disk with our loaders. `raw`: the old disk; `root`: the root's partition; `bios`,
    `efi`: those of the loaders, without a place yet. `serial`, `label`: of the FAT file system that the old disk had
    for its loaders, by which the system may mount it; empty where it had none."""

    raw: Path
    kept: tuple[KeptPart, ...]
    root: DiskPart
    bios: DiskPart
    efi: DiskPart
    serial: str = ""
    label: str = ""

    def placed(self, core_bytes: int, efi_bytes: int) -> tuple[DiskPart, ...]:
        """Return all partitions, those of the loaders behind the others and at least that long."""
        start = disk_table.aligned(max(one.part.end for one in self.kept))
        bios = replace(self.bios, start=start, length=disk_table.aligned(core_bytes))
        efi = replace(self.efi, start=bios.end, length=disk_table.aligned(efi_bytes))
        return (*(one.part for one in self.kept), bios, efi)


@contextlib.contextmanager
def opened(export: Export) -> Iterator[SystemDisk]:
    """Open the disk of an exported system. Raises UserInputError for one that is not as its record says."""
    told = export.files.system.disk
    number = told.root if told is not None else 0
    with open_disk(export.root) as disk:
        table, parts = partitions.read(disk.raw, disk.size_bytes, str(export.root))
        root = next((one for one in parts if one.number == number), None)
        if root is None:
            raise UserInputError(f"{export.root} has no partition {number}", hint="fit the system again")
        names = {} if table is TableKind.NONE else partitions.names(disk.raw)
        yield SystemDisk(raw=disk.raw, size_bytes=disk.size_bytes, table=table, parts=parts, root=root, names=names)


def beside_loaders(disk: SystemDisk, seed: str) -> SystemParts:
    """Return a disk's partitions, with the same numbers and places, but those from which its own loaders start: ours
    take their numbers. A file system without a table becomes the first partition. Raises UserInputError for a disk
    that leaves no room for that."""
    if disk.table is TableKind.NONE:
        root = DiskPart(
            name="root",
            start=ALIGN,
            length=disk_table.aligned(disk.size_bytes),
            number=1,
            type=LINUX,
            uuid=disk_table.uuid_of("root", seed),
        )
        return SystemParts(
            raw=disk.raw,
            kept=(KeptPart(root, 0),),
            root=root,
            bios=_loader("bios", 3, seed),
            efi=_loader("efi", 4, seed),
        )
    kept = [one for one in disk.parts if one.type not in (partitions.BIOS_BOOT, *partitions.EFI)]
    if disk.root not in kept or any(one.start_bytes < _FIRST for one in kept):
        raise UserInputError(
            f"{disk.raw.name} has a partition where a GPT lies, or its root on an EFI system partition",
            hint="--to qemu takes the disk as it is",
        )
    parts = tuple(KeptPart(_part(one, disk, seed), one.start_bytes) for one in kept)
    root = next(one.part for one in parts if one.part.number == disk.root.number)
    taken = {one.number for one in kept}
    old = next((one for one in disk.parts if one.type in partitions.EFI), None)
    efi = _loader("efi", _number(old, taken), seed)
    if old is not None and disk.table is TableKind.GPT:
        efi = replace(efi, uuid=_uuid(old.partition_uuid) or efi.uuid)
    grub = next((one for one in disk.parts if one.type == partitions.BIOS_BOOT), None)
    bios = _loader("bios", _number(grub, taken | {efi.number}), seed)
    serial = old.uuid if old is not None and _SERIAL.match(old.uuid) else ""
    label = old.label if old is not None and _LABEL.match(old.label) else ""
    return SystemParts(
        raw=disk.raw, kept=parts, root=root, bios=bios, efi=efi, serial=serial.replace("-", "").lower(), label=label
    )


def _loader(name: str, number: int, seed: str) -> DiskPart:
    return DiskPart(name=name, start=0, length=0, number=number, type=TYPES[name], uuid=disk_table.uuid_of(name, seed))


def _number(old: Partition | None, taken: set[int]) -> int:
    """Return the number of an old loader's partition, or the first that is free."""
    if old is not None and old.number not in taken:
        return old.number
    free = next((number for number in range(1, _MOST + 1) if number not in taken), None)
    if free is None:
        raise UserInputError("the system's disk has no partition left for a loader", hint="--to qemu needs none")
    return free


def _part(one: Partition, disk: SystemDisk, seed: str) -> DiskPart:
    """Return a partition as the new table has it: an MBR's gets a type and a UUID of a GPT."""
    own, kind = (_uuid(one.partition_uuid), _uuid(one.type)) if disk.table is TableKind.GPT else (None, None)
    usual = SWAP if one.type == _SWAP_MBR else LINUX
    name = disk.names.get(one.number, "")
    return DiskPart(
        name=name if _NAME.match(name) else "",
        start=one.start_bytes,
        length=one.size_bytes,
        number=one.number,
        type=str(kind or usual).upper(),
        uuid=own or disk_table.uuid_of(f"partition {one.number}", seed),
    )


def _uuid(text: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(text)
    except ValueError:
        return None


def on_volume(system: System) -> bool:
    """Return whether a system's root is an LVM volume, which its kernel makes by a word."""
    return system.disk is not None and bool(system.disk.root_volume)


def needs_mbr(system: System) -> bool:
    """Return whether a system mounts partitions by UUIDs of an MBR, which a GPT does not have."""
    by_uuid = any(one.device.upper().startswith("PARTUUID=") for one in system.mounts)
    return by_uuid and system.disk is not None and system.disk.table is TableKind.MBR
