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
from vmtailor.drivers.disks import places as disk_places
from vmtailor.drivers.disks.disk_image import OpenedDisk, open_disk
from vmtailor.drivers.disks.disk_tree import DiskTree
from vmtailor.drivers.disks.places import DiskPlace, Places
from vmtailor.drivers.image.flat_archive import ArchiveTree
from vmtailor.model.systems.system import DiskLayout, Mount, Partition, SubjectKind, System, TableKind

_SUSPENDED = "swsuspend"
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


@dataclass(frozen=True)
class _Root:
    """The place of a system on a disk, and its tree."""

    place: DiskPlace
    tree: DiskTree
    root: RootTree


@contextlib.contextmanager
def of_disk(
    path: Path, reference: str, *, partition: int | None = None, init: str = "", identity: str = ""
) -> Iterator[OpenedSystem]:
    """Read a disk image. `partition`: the number of the system's partition, if several have one.

    Raises UserInputError, with the reason, for every disk that no system is fitted from."""
    with open_disk(path) as disk:
        places = disk_places.read(disk)
        _refuse_asleep(places, path)
        found_root = _root_of(disk, places, partition)
        root = found_root.root
        fstab = mounts.parse_fstab(root.text("/etc/fstab"))
        boot = _boot_of(disk, places, found_root, fstab)
        if boot is not None:
            found_root.tree.mount("/boot", disk_places.opened(disk, boot))
        efi = _mount_efi(disk, places, found_root, fstab)
        root = RootTree(found_root.tree)
        layout = DiskLayout(
            format=str(disk.format),
            size_bytes=disk.size_bytes,
            table=places.table,
            partitions=places.partitions if places.table is not TableKind.NONE else (),
            root=found_root.place.number,
            boot=boot.number if boot is not None else 0,
            firmware=_firmware(disk, places.table, places.partitions),
            volumes=places.volumes,
            root_volume=found_root.place.volume,
            root_type=disk_places.kernels_name(found_root.place),
        )
        _refuse_sleeping_files(root, [one.device for one in fstab if one.type == "swap"], path)
        found = describe(
            root,
            reference,
            SubjectKind.DISK,
            disk=layout,
            identity_text=identity,
            init=init,
            efi=efi,
            notes=_notes(fstab, places),
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


def _root_of(disk: OpenedDisk, places: Places, wanted: int | None) -> _Root:
    """Return the place that has the system: the only one that looks like one, or that on the partition which was asked
    for. Raises UserInputError, by name, where there is none."""
    numbers = {one.number for one in places.partitions}
    if wanted is not None and wanted not in numbers:
        raise UserInputError(
            f"{disk.path} has no partition {wanted}", hint=f"it has {', '.join(map(str, sorted(numbers)))}"
        )
    asked = [one for one in disk_places.every(disk, places) if wanted in (None, one.number)]
    found = []
    for one in asked:
        if one.content in disk_places.READ:
            tree = DiskTree(disk_places.opened(disk, one), one.name)
            root = RootTree(tree)
            sure = wanted is not None and len(asked) == 1
            if sure or any(root.resolve(sign) for sign in _ROOT_SIGNS):
                found.append(_Root(one, tree, root))
    if len(found) == 1:
        return found[0]
    if found:
        where = " and ".join(one.place.volume or str(one.place.number) for one in found)
        raise UserInputError(f"{disk.path} has systems on partitions {where}", hint="choose one: --partition NUMBER")
    raise disk_places.no_root(disk, places, asked)


def _boot_of(disk: OpenedDisk, places: Places, root: _Root, fstab: Sequence[Mount]) -> DiskPlace | None:
    """Return the partition that is mounted on /boot, if it is one that is read."""
    line = next((one for one in fstab if one.place.rstrip("/") == "/boot"), None)
    if line is None:
        return None
    return next(
        (
            disk_places.partition(disk, one)
            for one in places.partitions
            if (root.place.volume or one.number != root.place.number)
            and one.content in disk_places.BOOTABLE
            and mounts.names_partition(line.device, one)
        ),
        None,
    )


def _mount_efi(disk: OpenedDisk, places: Places, root: _Root, fstab: Sequence[Mount]) -> str:
    """Mount the EFI system partition in a system's tree, where /boot is none; return the place, empty for none. Without
    a line of fstab systemd mounts it itself."""
    part = next((one for one in places.partitions if one.type in partitions.EFI and one.content == "vfat"), None)
    if part is None:
        return ""
    line = next((one for one in fstab if mounts.names_partition(one.device, part)), None)
    place = line.place.rstrip("/") if line is not None else "/efi" if root.root.names("/").get("efi") else ""
    if place in ("/boot/efi", "/efi"):
        root.tree.mount(place, disk_places.opened(disk, disk_places.partition(disk, part)))
    return place


def _is_on(device: str, places: Places) -> bool:
    """Return whether a device that fstab names is a place of the disk."""
    return any(mounts.names_partition(device, one) for one in places.partitions) or any(
        mounts.names_volume(device, one) for one in places.volumes
    )


def _firmware(disk: OpenedDisk, kind: TableKind, parts: Sequence[Partition]) -> tuple[str, ...]:
    """Return the firmware that the loaders on the disk start from."""
    with disk.raw.open("rb") as file:
        code = any(file.read(440))
    bios = code and (kind is not TableKind.GPT or any(one.type == partitions.BIOS_BOOT for one in parts))
    efi = any(one.type in partitions.EFI for one in parts)
    return (*(("bios",) if bios else ()), *(("uefi",) if efi else ()))


def _refuse_asleep(places: Places, path: Path) -> None:
    for one in places.partitions:
        if one.content == _SUSPENDED:
            raise UserInputError(f"{path} is hibernated: a system sleeps in partition {one.number}", hint=_HIBERNATED)
    for volume in places.volumes:
        if volume.content == _SUSPENDED:
            raise UserInputError(
                f"{path} is hibernated: a system sleeps in the volume {volume.full_name}", hint=_HIBERNATED
            )


def _refuse_sleeping_files(root: RootTree, devices: Sequence[str], path: Path) -> None:
    for device in devices[:8]:
        node = root.node(device) if device.startswith("/") and not device.startswith("/dev/") else None
        if node is None or not _PAGE <= node.size <= _MOST_SWAP_BYTES:
            continue
        if root.begin(device, _PAGE)[-10:].startswith(_ASLEEP):
            raise UserInputError(f"{path} is hibernated: a system sleeps in {plain(device)[:200]}", hint=_HIBERNATED)


def _notes(fstab: Sequence[Mount], places: Places) -> list[str]:
    """Return remarks on mounts of fstab that are not on this disk, or were not read; and on volumes that are not."""
    found = []
    for one in fstab:
        if one.place in ("/usr", "/var", "/home", "/opt", "/srv") and not _is_on(one.device, places):
            found.append(f"{one.place} is on {one.device}, which is not on this disk")
        elif one.place == "/usr":
            found.append("/usr is a partition of its own, which is not read")
    found += [f"the volume {name} is {why}, which is not read" for name, why in places.unlike[:8]]
    return [plain(text)[:300] for text in found]
