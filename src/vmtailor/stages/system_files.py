# SPDX-License-Identifier: Apache-2.0
"""The subject stage for systems with an init of their own: read the facts of a disk image or a flat archive."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from vmtailor.analysis.systems import mounts
from vmtailor.analysis.systems.describe import describe
from vmtailor.analysis.systems.root import RootTree
from vmtailor.base.errors import UserInputError
from vmtailor.base.text import plain
from vmtailor.drivers.disks import partitions
from vmtailor.drivers.disks.disk_image import OpenedDisk, open_disk
from vmtailor.drivers.disks.disk_tree import DiskTree
from vmtailor.drivers.disks.ext4 import Ext4
from vmtailor.drivers.image.flat_archive import ArchiveTree
from vmtailor.model.systems.system import DiskLayout, Mount, Partition, SubjectKind, System, TableKind

#: libblkid's names for things that hide a file system → their names for people.
_HIDING = {"crypto_LUKS": "encrypted (LUKS)", "BitLocker": "encrypted (BitLocker)"}
_VOLUMES = {
    "LVM2_member": "a part of LVM volumes",
    "linux_raid_member": "a part of a RAID",
    "zfs_member": "a part of a ZFS pool",
}
#: Contents that hold no root, and are passed over.
_NO_ROOT = ("", "swap", "vfat")
_SUSPENDED = "swsuspend"
_EXT4 = ("ext4", "ext3", "ext2")
_HIBERNATED = "start the machine and shut it down: what sleeps in it would be lost"
#: The first page of a swap file ends in these letters while a system sleeps in it.
_ASLEEP = (b"S1SUSPEND", b"S2SUSPEND", b"ULSUSPEND", b"LINHIB0001")
_PAGE = 4096
#: Swap files that are looked into.
_MOST_SWAP_BYTES = 16 << 30
#: Files that a root has.
_ROOT_SIGNS = ("/sbin/init", "/etc/os-release", "/usr/lib/os-release")


@dataclass(frozen=True)
class OpenedSystem:
    """A subject with its files, for as long as its block lasts."""

    subject: System
    root: RootTree
    disk: OpenedDisk | None = None


@contextlib.contextmanager
def of_disk(
    path: Path, reference: str, *, partition: int | None = None, init: str = "", identity: str = ""
) -> Iterator[OpenedSystem]:
    """Read a disk image. `partition`: the number of the system's partition, if several have one.

    Raises UserInputError, with the reason, for every disk that no system is fitted from."""
    with open_disk(path) as disk:
        kind, parts = partitions.read(disk.raw, disk.size_bytes, str(path))
        _refuse_asleep(parts, path)
        number, tree, root = _root_of(disk, parts, partition)
        fstab = mounts.parse_fstab(root.text("/etc/fstab"))
        boot = _boot_of(parts, number, fstab)
        if boot is not None:
            tree.mount_boot(Ext4(disk.raw, boot.start_bytes, f"{path}, partition {boot.number}"))
            root = RootTree(tree)
        layout = DiskLayout(
            format=str(disk.format),
            size_bytes=disk.size_bytes,
            table=kind,
            partitions=parts if kind is not TableKind.NONE else (),
            root=number,
            boot=boot.number if boot is not None else 0,
            firmware=_firmware(disk, kind, parts),
        )
        _refuse_sleeping_files(root, [one.device for one in fstab if one.type == "swap"], path)
        found = describe(
            root,
            reference,
            SubjectKind.DISK,
            disk=layout,
            identity_text=identity,
            init=init,
            notes=_notes(fstab, parts),
        )
        if not found.kernel:
            raise UserInputError(
                f"{path} has no kernel inside: nothing below /boot or /usr/lib/modules is one",
                hint="install the distribution's kernel in it, or give its tree: rootfs:FOLDER or rootfs:ARCHIVE",
            )
        yield OpenedSystem(found, root, disk)


def of_archive(archive: Path, reference: str, kind: SubjectKind, *, init: str = "", identity: str = "") -> OpenedSystem:
    """Read a system from a flat archive of an image or a root tree. Raises UserInputError when it has no init."""
    root = RootTree(ArchiveTree(archive))
    return OpenedSystem(describe(root, reference, kind, init=init, identity_text=identity), root)


def _root_of(disk: OpenedDisk, parts: Sequence[Partition], wanted: int | None) -> tuple[int, DiskTree, RootTree]:
    """Return the partition that has the system: the only one that looks like one, or the one that was asked for."""
    if wanted is not None and wanted not in {one.number for one in parts}:
        numbers = ", ".join(str(one.number) for one in parts)
        raise UserInputError(f"{disk.path} has no partition {wanted}", hint=f"it has {numbers}")
    asked = [one for one in parts if wanted in (None, one.number)]
    found: list[tuple[int, DiskTree, RootTree]] = []
    for one in asked:
        if one.content in _EXT4:
            name = f"{disk.path}, partition {one.number}" if one.number else str(disk.path)
            tree = DiskTree(Ext4(disk.raw, one.start_bytes, name), name)
            root = RootTree(tree)
            if wanted is not None or any(root.resolve(sign) for sign in _ROOT_SIGNS):
                found.append((one.number, tree, root))
    if len(found) == 1:
        return found[0]
    if found:
        numbers = " and ".join(str(number) for number, _, _ in found)
        raise UserInputError(f"{disk.path} has systems on partitions {numbers}", hint="choose one: --partition NUMBER")
    raise _no_root(disk, asked)


def _no_root(disk: OpenedDisk, parts: Sequence[Partition]) -> UserInputError:
    """Why there is none, by name."""
    for one in parts:
        where = f"{disk.path}, partition {one.number}," if one.number else f"{disk.path}"
        if one.content in _HIDING:
            return UserInputError(f"{where} is {_HIDING[one.content]}", hint="give an image that is not encrypted")
        if one.content in _VOLUMES:
            return UserInputError(
                f"{where} is {_VOLUMES[one.content]}, which is not read",
                hint="give the root file system as a disk of its own",
            )
    others = [one for one in parts if one.content not in (*_NO_ROOT, *_EXT4)]
    if others:
        one = others[0]
        where = f"{disk.path}, partition {one.number}," if one.number else f"{disk.path}"
        return UserInputError(
            f"{where} has a file system of the kind {plain(one.content)[:40]}; systems are read from ext4",
            hint="give the tree as an archive: rootfs:ARCHIVE",
        )
    if any(one.content in _EXT4 for one in parts):
        return UserInputError(
            f"{disk.path} has no system on it: no partition has an init or os-release", hint="--partition NUMBER"
        )
    return UserInputError(
        f"{disk.path} has no file system that is known",
        hint="a system is read from ext4, on the whole disk or a partition",
    )


def _boot_of(parts: Sequence[Partition], root: int, fstab: Sequence[Mount]) -> Partition | None:
    line = next((one for one in fstab if one.place.rstrip("/") == "/boot"), None)
    if line is None:
        return None
    return next(
        (
            one
            for one in parts
            if one.number != root and one.content in _EXT4 and mounts.names_partition(line.device, one)
        ),
        None,
    )


def _firmware(disk: OpenedDisk, kind: TableKind, parts: Sequence[Partition]) -> tuple[str, ...]:
    """Return the firmware that the loaders on the disk start from."""
    with disk.raw.open("rb") as file:
        code = any(file.read(440))
    bios = code and (kind is not TableKind.GPT or any(one.type == partitions.BIOS_BOOT for one in parts))
    efi = any(one.type in partitions.EFI for one in parts)
    return (*(("bios",) if bios else ()), *(("uefi",) if efi else ()))


def _refuse_asleep(parts: Sequence[Partition], path: Path) -> None:
    for one in parts:
        if one.content == _SUSPENDED:
            raise UserInputError(f"{path} is hibernated: a system sleeps in partition {one.number}", hint=_HIBERNATED)


def _refuse_sleeping_files(root: RootTree, devices: Sequence[str], path: Path) -> None:
    for device in devices[:8]:
        node = root.node(device) if device.startswith("/") and not device.startswith("/dev/") else None
        if node is None or not _PAGE <= node.size <= _MOST_SWAP_BYTES:
            continue
        if root.begin(device, _PAGE)[-10:].startswith(_ASLEEP):
            raise UserInputError(f"{path} is hibernated: a system sleeps in {plain(device)[:200]}", hint=_HIBERNATED)


def _notes(fstab: Sequence[Mount], parts: Sequence[Partition]) -> list[str]:
    """Return remarks on mounts of fstab that are not on this disk, or were not read."""
    found = []
    for one in fstab:
        if one.place in ("/usr", "/var", "/home", "/opt", "/srv") and not any(
            mounts.names_partition(one.device, part) for part in parts
        ):
            found.append(f"{one.place} is on {one.device}, which is not on this disk")
        elif one.place == "/usr":
            found.append("/usr is a partition of its own, which is not read")
    return [plain(text)[:300] for text in found]
