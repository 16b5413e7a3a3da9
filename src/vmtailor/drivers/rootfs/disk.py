# SPDX-License-Identifier: Apache-2.0
"""What a user hands over to be booted: disk images by their content, and initial RAM disks that get the collector
added."""

from __future__ import annotations

from pathlib import Path

from vmtailor.base.errors import UserInputError
from vmtailor.drivers.rootfs import qcow2
from vmtailor.drivers.rootfs.initramfs import cpio, file
from vmtailor.model.machine import Disk, DiskFormat, DiskMode

#: Name of the collector in the initial RAM disk: readers of bootcharts know an observer by it.
COLLECTOR = "bootchart-vt"


def disk_of(path: Path) -> Disk:
    """A disk image that is never written, its format told by its first bytes. Raises UserInputError when it is none."""
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
        raise UserInputError(f"{path} is no disk image", hint="give a raw or qcow2 image, or --kernel")
    form = DiskFormat.QCOW2 if head.startswith(qcow2.MAGIC) else DiskFormat.RAW
    return Disk(str(path.absolute()), form, DiskMode.OVERLAID)


def has_loader(disk: Disk) -> bool:
    """Whether a disk can start by itself. A raw one without a partition table or loader in its first sector cannot."""
    if disk.format is not DiskFormat.RAW:
        return True
    with Path(disk.path).open("rb") as image:
        sector = image.read(512)
    return sector[510:512] == b"\x55\xaa" and any(sector[:440])


def with_collector(initrd: Path, collector: Path, out: Path) -> Path:
    """A copy of an initial RAM disk with the collector behind it: the kernel unpacks archives that follow each other.

    The machine needs `rdinit=/bootchart-vt`; the collector then starts the /init that was there."""
    extra = cpio([file(COLLECTOR, collector.read_bytes(), 0o755)])
    out.write_bytes(_padded(initrd.read_bytes()) + extra)
    return out


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
