# SPDX-License-Identifier: Apache-2.0
"""The places of a disk that may hold a system: its partitions, and the LVM volumes on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vmtailor.base.errors import UserInputError
from vmtailor.base.text import plain
from vmtailor.drivers.disks import lvm, partitions
from vmtailor.drivers.disks.disk_image import OpenedDisk
from vmtailor.drivers.disks.ext4 import Ext4
from vmtailor.drivers.disks.fat_tree import FatTree
from vmtailor.drivers.disks.file_system import FileSystem
from vmtailor.drivers.disks.stretches import Stretches
from vmtailor.drivers.disks.xfs import Xfs
from vmtailor.drivers.image.allowance import require_room
from vmtailor.model.systems.system import LinearVolume, Partition, TableKind

#: libblkid's names for things that hide a file system → their names for people.
_HIDING = {"crypto_LUKS": "encrypted (LUKS)", "BitLocker": "encrypted (BitLocker)"}
_MEMBERS = {
    "linux_raid_member": "a part of a RAID (MD)",
    "mpath_member": "a path of a multipath device",
    "zfs_member": "a part of a ZFS pool",
}
#: Contents that hold no root, and are passed over.
_NO_ROOT = ("", "swap", "vfat", lvm.MEMBER)
_EXT4, _XFS = ("ext4", "ext3", "ext2"), "xfs"
_FAT = "vfat"
READ = (*_EXT4, _XFS)
#: Contents of a /boot of its own.
BOOTABLE = (*READ, _FAT)
_AS_ARCHIVE = "give the tree as an archive: rootfs:ARCHIVE"


@dataclass(frozen=True)
class Places:
    """The parts of a disk. `unlike`: volumes that are not linear, with what they are."""

    table: TableKind
    partitions: tuple[Partition, ...]
    volumes: tuple[LinearVolume, ...]
    unlike: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class DiskPlace:
    """A partition or volume. `number`: of the partition, or of that which the volume begins on; `name`: in messages."""

    number: int
    content: str
    name: str
    stretches: Stretches
    volume: str = ""


def kernels_name(place: DiskPlace) -> str:
    """Return the file system of a place as a mount names it: ext4 mounts what came before it, too."""
    return _XFS if place.content == _XFS else _EXT4[0]


def read(disk: OpenedDisk) -> Places:
    """Return the places of a disk. Raises UserInputError for tables and metadata that make no sense."""
    table, parts = partitions.read(disk.raw, disk.size_bytes, str(disk.path))
    found = lvm.read(disk.raw, disk.size_bytes, parts, str(disk.path))
    return Places(table, parts, found.linear, found.unlike)


def opened(disk: OpenedDisk, place: DiskPlace) -> FileSystem:
    """Open the file system of a place. A volume in several pieces is joined in a file for tools that want it whole."""
    if place.content == _XFS:
        return Xfs(place.stretches)
    if place.content == _FAT:
        return FatTree(place.stretches)
    if (offset := place.stretches.offset) is not None:
        return Ext4(disk.raw, offset, place.name)
    joined = disk.raw.with_name("volume")
    if not joined.exists():
        require_room(joined.parent, min(place.stretches.size_bytes, disk.raw.stat().st_blocks * 512))
        place.stretches.copied(joined)
    return Ext4(joined, 0, place.name)


def every(disk: OpenedDisk, places: Places) -> list[DiskPlace]:
    """Return all places of a disk, partitions first."""
    volumes = [
        DiskPlace(
            number=one.segments[0].partition,
            content=one.content,
            name=f"{disk.path}, volume {one.full_name}",
            stretches=lvm.place_of(one, disk.raw, places.partitions, str(disk.path)),
            volume=one.full_name,
        )
        for one in places.volumes
    ]
    return [*(partition(disk, one) for one in places.partitions), *volumes]


def partition(disk: OpenedDisk, one: Partition) -> DiskPlace:
    """Return the place of a partition."""
    name = f"{disk.path}, partition {one.number}" if one.number else str(disk.path)
    return DiskPlace(one.number, one.content, name, Stretches(disk.raw, ((one.start_bytes, one.size_bytes),), name))


def no_root(disk: OpenedDisk, places: Places, asked: Sequence[DiskPlace]) -> UserInputError:
    """Return the error that says why there is none, by name."""
    if (hidden := _hidden(asked)) is not None:
        return hidden
    if places.unlike:
        name, why = places.unlike[0]
        return UserInputError(
            f"{disk.path} has no system on a linear volume: {plain(name)[:200]} is {why}, which is not read",
            hint="give the root file system as a disk of its own",
        )
    member = next((one for one in asked if one.content == lvm.MEMBER), None)
    if member is not None and not places.volumes:
        return UserInputError(
            f"{member.name} is a part of LVM volumes that no metadata on this disk describes",
            hint="give the disk with the group's other physical volumes joined, or its root as a disk of its own",
        )
    others = [one for one in asked if one.content not in (*_NO_ROOT, *READ)]
    if others:
        one = others[0]
        return UserInputError(
            f"{one.name} has a file system of the kind {plain(one.content)[:40]}; systems are read from ext4 and XFS",
            hint=_AS_ARCHIVE,
        )
    if any(one.content in READ for one in asked):
        return UserInputError(
            f"{disk.path} has no system on it: no partition has an init or os-release", hint="--partition NUMBER"
        )
    return UserInputError(
        f"{disk.path} has no file system that is known",
        hint="a system is read from ext4 or XFS, on the whole disk, a partition or an LVM volume",
    )


def _hidden(asked: Sequence[DiskPlace]) -> UserInputError | None:
    """Return the error for a place whose file system cannot be seen; None where there is none."""
    for one in asked:
        if one.content in _HIDING:
            return UserInputError(f"{one.name} is {_HIDING[one.content]}", hint="give an image that is not encrypted")
        if one.content in _MEMBERS:
            return UserInputError(
                f"{one.name} is {_MEMBERS[one.content]}, which is not read",
                hint="give the root file system as a disk of its own",
            )
    return None
