# SPDX-License-Identifier: Apache-2.0
"""A boot entry beside the old ones of a disk: for GRUB on an ext4, for systemd-boot on its FAT file system. The disk is
a copy of the user's, as raw bytes in a folder of our own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vmtailor.base.errors import UserInputError
from vmtailor.drivers.disks import ext4, partitions
from vmtailor.drivers.disks.fat import Fat
from vmtailor.model.systems.system import Partition

_SYSTEMD_BOOT = ("/EFI/systemd/systemd-bootx64.efi", "/EFI/systemd/systemd-bootaa64.efi")


@dataclass(frozen=True)
class Written:
    """Changed files, by paths within the file system `where`, for people."""

    where: str
    files: tuple[str, ...]


def systemd_boot(raw: Path, parts: Sequence[Partition], name: str) -> Fat | None:
    """Return the FAT file system from which systemd-boot starts; None where no partition has it."""
    for one in parts:
        if one.type in partitions.EFI and one.content == "vfat":
            found = Fat(raw, one.start_bytes, f"{name}, partition {one.number}")
            if any(found.is_file(path) for path in _SYSTEMD_BOOT):
                return found
    return None


def write_fat(fat: Fat, files: dict[str, bytes], gone: Sequence[str] = ()) -> Written:
    """Write files, folders on the way made, and remove others."""
    for path in gone:
        fat.remove(path)
    for path, data in files.items():
        fat.put(path, data)
    return Written(fat.name, tuple(files))


def write_ext4(raw: Path, start: int, files: dict[str, bytes], name: str) -> Written:
    """Write files into an ext4 at a byte of a disk. Raises UserInputError as `ext4.put` does."""
    for path in files:
        ext4.require_plain(path)
    ext4.put(raw, start, dict(files), name)
    return Written(name, tuple(files))


def no_loader(path: Path) -> UserInputError:
    """Return the error for a disk without a loader that is changed."""
    return UserInputError(
        f"{path} has no boot loader that vmtailor changes: neither systemd-boot on its EFI system partition nor GRUB's "
        "configuration on an ext4",
        hint="vmtailor export BUNDLE --to disk makes a disk with loaders of its own",
    )
