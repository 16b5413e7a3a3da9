# SPDX-License-Identifier: Apache-2.0
"""A disk image as raw bytes, in any format. The image is only read, and must not change meanwhile."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from vmtailor.base import figures, notation
from vmtailor.base.disk_full import DiskFull, no_space
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import temporary
from vmtailor.base.files.regular_files import open_regular
from vmtailor.base.process import CommandFailed, Meanwhile
from vmtailor.drivers.disks.sandbox import run_shut_in
from vmtailor.drivers.image.allowance import ImageLimits, WrittenByTool, free_bytes, require_room
from vmtailor.drivers.rootfs import boot_disk
from vmtailor.model.machine import DiskFormat

#: Images that say they are larger are refused: no machine of ours has such a disk.
MOST_BYTES = 8 << 40
LEAST_BYTES = 4096
_INFO_BYTES = 1 << 20
#: Seconds that converting one image may take.
CONVERT_S = 1800.0
#: Seconds between two looks at how much was unpacked.
LOOK_S = 0.02
_ELSEWHERE = "point TMPDIR to another disk"
_HINT = "give a raw or qcow2 image of a whole disk"
#: First bytes of forms that are not read, and what converts them.
_FOREIGN = {
    b"KDMV": "vmdk", b"# Disk DescriptorFile": "vmdk", b"conectix": "vpc", b"vhdxfile": "vhdx", b"QED\0": "qed",
    b"<<< ": "vdi", b"WithoutFreeSpace": "parallels", b"LUKS\xba\xbe": "luks",
}  # fmt: skip
#: The byte of an image that QEMU locks while it may write to it (the permission "write" of its file driver).
_QEMU_WRITES_AT = 101
_LOCK = struct.Struct("hhqqi4x")


@dataclass(frozen=True)
class OpenedDisk:
    """`path`: as the user named it; `raw`: the same content as raw bytes, as long as the block lasts."""

    path: Path
    raw: Path
    format: DiskFormat
    size_bytes: int


@contextlib.contextmanager
def open_disk(path: Path, scratch: Path | None = None) -> Iterator[OpenedDisk]:
    """Open an image. A qcow2 is unpacked beside, into a file with holes. At the end it is looked whether the image has
    changed meanwhile.

    Raises UserInputError: no image, of another form, standing on other files, in use, changing, or empty; HostError: no
    space to unpack it."""
    with open_regular(path, "the disk image", hint=_HINT) as file:
        before = os.fstat(file.fileno())
        head = file.read(512)
        if before.st_size == 0 or len(head) < 512:
            raise UserInputError(f"{path} is not a disk image: it has {before.st_size} bytes", hint=_HINT)
        _require_known(path, head)
        _require_unused(path, file.fileno())
        with temporary.held_folder(scratch) as folder:
            link = folder / "disk"
            # Under a name of our own: tools give a meaning to some signs in names.
            link.symlink_to(path.absolute())
            if head.startswith(boot_disk.MAGIC):
                boot_disk.require_alone(str(path))
                raw, form = folder / "raw" / "disk", DiskFormat.QCOW2
                size = _unpack(path, link, raw)
            else:
                raw, form, size = link, DiskFormat.RAW, before.st_size
            if not LEAST_BYTES <= size <= MOST_BYTES:
                raise UserInputError(
                    f"{path} is a disk of {figures.file_bytes(size)}, too small or too large for a system", hint=_HINT
                )
            yield OpenedDisk(path, raw, form, size)
        after = path.stat()
        if (before.st_size, before.st_mtime_ns, before.st_ino) != (after.st_size, after.st_mtime_ns, after.st_ino):
            raise UserInputError(
                f"{path} changed while it was read", hint="stop the program that writes to it, or give a copy"
            )


def _require_known(path: Path, head: bytes) -> None:
    found = next((name for magic, name in _FOREIGN.items() if head.startswith(magic)), "")
    if found == "luks":
        raise UserInputError(f"{path} is encrypted (LUKS)", hint="decrypt it first, or give another image")
    if found:
        raise UserInputError(
            f"{path} has the unsupported disk image format {found}",
            hint=f"convert it: qemu-img convert -f {found} -O qcow2 {path} {path.with_suffix('.qcow2').name}",
        )


def _require_unused(path: Path, descriptor: int) -> None:
    """A running machine may write to it: what is read would be half old, half new."""
    asked = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, _QEMU_WRITES_AT, 1, 0)
    with contextlib.suppress(OSError):  # a file system without locks
        found = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, asked)
        if _LOCK.unpack(found)[0] != fcntl.F_UNLCK:
            raise UserInputError(f"{path} is in use by a running machine", hint="shut that machine down first")


def _unpack(path: Path, link: Path, raw: Path) -> int:
    """Unpack a qcow2; returns its size in bytes."""
    broken = f"for details, run: qemu-img check {path}"
    try:
        done = run_shut_in(
            "qemu-img", ["info", "--output=json", "-f", "qcow2", str(link)], shown=(link,), package="qemu-utils",
            most_bytes=_INFO_BYTES, timeout_s=60,
        )  # fmt: skip
        told = msgspec.json.decode(done.stdout)
        size, used = int(told["virtual-size"]), int(told["actual-size"])
        if told.get("encrypted"):
            raise UserInputError(f"{path} is encrypted", hint="decrypt it first, or give another image")
        if size > MOST_BYTES:
            raise UserInputError(f"{path} says that it is a disk of {figures.file_bytes(size)}", hint=_HINT)
        raw.parent.mkdir()
        require_room(raw.parent, min(size, used))
        run_shut_in(
            "qemu-img", ["convert", "-f", "qcow2", "-O", "raw", "-S", "4k", str(link), str(raw)], shown=(link,),
            written=raw.parent, package="qemu-utils", most_bytes=size + (1 << 20), timeout_s=CONVERT_S,
            meanwhile=Meanwhile(LOOK_S, _within(path, raw, used).look),
        )  # fmt: skip
        if raw.stat().st_size != size:
            raise ValueError(f"qemu-img has unpacked {raw.stat().st_size} of {size} bytes")
    except DiskFull as error:
        free = notation.mebibytes(free_bytes(link.parent) >> 20 << 20)
        raise no_space(f"to unpack {path}: {free} are free", elsewhere=_ELSEWHERE, details=error.details) from error
    except CommandFailed as error:
        raise UserInputError(f"{path} is a damaged qcow2 image", hint=broken, details=error.details) from error
    except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
        raise UserInputError(f"{path} is a damaged qcow2 image", hint=broken, details=str(error)) from error
    return size


def _within(path: Path, raw: Path, used: int) -> WrittenByTool:
    """Return the bound of a disk's content: that of images, or the size of its file where that is more. A few hundred
    kilobytes can name one cluster for every place of a large disk."""
    most = max(ImageLimits.for_disk(raw.parent).unpacked_bytes, used)

    def refuse() -> UserInputError:
        return UserInputError(
            f"{path} unpacks to more than {notation.size_text(most)}, the limit for a qcow2 image",
            hint=f"if you trust it, unpack it, and give the result: qemu-img convert -O raw {path} "
            f"{path.with_suffix('.raw').name}",
        )

    return WrittenByTool(raw.parent, most, lambda: raw.stat().st_blocks * 512 if raw.exists() else 0, refuse)
