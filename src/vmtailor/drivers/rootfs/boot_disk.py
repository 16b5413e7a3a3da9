# SPDX-License-Identifier: Apache-2.0
"""Disk images that a user hands over to be booted."""

from __future__ import annotations

import struct
from pathlib import Path

from vmtailor.base.errors import UserInputError
from vmtailor.model.machine import Disk, DiskFormat, DiskMode


def disk_of(path: Path) -> Disk:
    """Return a disk image that is never written, its format told by its first bytes. Raises UserInputError for another
    file."""
    if path.is_fifo():
        raise UserInputError(f"{path} is a named pipe", hint="give a raw or qcow2 image, or --kernel")
    try:
        with path.open("rb") as image:
            head = image.read(512)
    except FileNotFoundError:
        raise UserInputError(f"{path} does not exist") from None
    except OSError as error:
        raise UserInputError(f"{path} cannot be read: {error.strerror}") from error
    if len(head) < 512:
        raise UserInputError(f"{path} is not a disk image", hint="give a raw or qcow2 image, or --kernel")
    form = DiskFormat.QCOW2 if head.startswith(MAGIC) else DiskFormat.RAW
    return Disk(str(path.absolute()), form, DiskMode.OVERLAID)


def has_loader(disk: Disk) -> bool:
    """Return whether a disk can start by itself. A raw one without a partition table or loader in its first sector
    cannot."""
    if disk.format is not DiskFormat.RAW:
        return True
    with Path(disk.path).open("rb") as image:
        sector = image.read(512)
    return sector[510:512] == b"\x55\xaa" and any(sector[:440])


MAGIC = b"QFI\xfb"
#: Version, then where the name of the file below is (0: there is none).
_HEAD = struct.Struct(">4sIQ")
_INCOMPATIBLE = struct.Struct(">Q")
_INCOMPATIBLE_AT = 72
#: Bit of the incompatible features: the data are in another file.
_EXTERNAL_DATA = 1 << 2


def require_alone(path: str) -> None:
    """Raise UserInputError when a qcow2 image has a backing file, or its data elsewhere."""
    with Path(path).open("rb") as file:
        head = file.read(_INCOMPATIBLE_AT + _INCOMPATIBLE.size)
    if len(head) < _HEAD.size or not head.startswith(MAGIC):
        return  # QEMU says what is wrong with it
    _, version, backing = _HEAD.unpack_from(head)
    external = False
    if version >= 3 and len(head) == _INCOMPATIBLE_AT + _INCOMPATIBLE.size:
        external = bool(_INCOMPATIBLE.unpack_from(head, _INCOMPATIBLE_AT)[0] & _EXTERNAL_DATA)
    if backing or external:
        raise UserInputError(
            f"the disk image {path} depends on another file that it names",
            hint=f"merge both into one image: qemu-img convert -O qcow2 {path} whole.qcow2",
        )
