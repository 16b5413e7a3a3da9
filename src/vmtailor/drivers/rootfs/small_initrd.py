# SPDX-License-Identifier: Apache-2.0
"""A machine's initial RAM disk rebuilt small: the few modules that its root disk needs, taken from its own, and our
init."""

from __future__ import annotations

import lzma
import zlib
from pathlib import Path

from vmtailor.base import notation
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import temporary
from vmtailor.base.process import CommandFailed, OutputTooLong, require_tool, run
from vmtailor.drivers.rootfs.initramfs import archive, load_order
from vmtailor.model.machine import Disk, DiskFormat

#: Bytes that an initial RAM disk may unpack to.
MAX_UNPACKED = 1 << 30
#: Modules that reach root disks in QEMU; those that a kernel has built in are passed over.
TRANSPORTS = ("virtio_pci", "virtio_mmio", "virtio_blk")
#: Makes volumes out of stretches of disks.
DEVICE_MAPPER = "dm_mod"
#: The file system's module, and the checksums that it asks for by name only.
FILE_SYSTEMS = {
    "ext4": ("crc32c_generic", "crc32c_intel", "ext4"),
    "xfs": ("crc32c_generic", "xfs"),
    "btrfs": ("crc32c_generic", "xor", "raid6_pq", "btrfs"),
    "erofs": ("erofs",),
    "squashfs": ("squashfs",),
}
_HEADER = 110


def file_system(disk: Disk) -> str:
    """Return the file system that fills a raw disk; "" where it is not known (a partition table, qcow2)."""
    if disk.format is not DiskFormat.RAW:
        return ""
    with Path(disk.path).open("rb") as image:
        head = image.read(1 << 17)
    if head[1080:1082] == b"\x53\xef":
        return "ext4"
    if head[:4] == b"XFSB":
        return "xfs"
    if head[0x10040:0x10048] == b"_BHRfS_M":
        return "btrfs"
    if head[1024:1028] == b"\xe2\xe1\xf5\xe0":
        return "erofs"
    return "squashfs" if head[:4] == b"hsqs" else ""


def read(path: Path) -> dict[str, bytes]:
    """Return the regular files of an initial RAM disk, by name: archives that follow each other, the last one packed or
    not.

    Raises UserInputError when it is damaged or packed in a way that is not known."""
    data, found, at = path.read_bytes(), dict[str, bytes](), 0
    while at < len(data):
        if data[at : at + 1] == b"\0":
            at += 1
        elif data[at : at + 6] in (b"070701", b"070702"):
            at = _archive(data, at, found)
        else:
            data, at = _unpacked(data[at:], path), 0
    return found


def _archive(data: bytes, at: int, found: dict[str, bytes]) -> int:
    try:
        while True:
            fields = [int(data[at + 6 + 8 * i : at + 14 + 8 * i], 16) for i in range(13)]
            mode, size, name_size = fields[1], fields[6], fields[11]
            name = data[at + _HEADER : at + _HEADER + name_size - 1].decode("utf-8", "replace")
            start = at + (_HEADER + name_size + 3 & ~3)
            end = start + size
            if name_size == 0 or end > len(data) or data[at : at + 4] != b"0707":
                raise ValueError("cut off")
            at = end + 3 & ~3
            if name == "TRAILER!!!":
                return at
            if mode & 0o170000 == 0o100000:
                found[name.removeprefix("./")] = data[start:end]
    except ValueError as error:
        raise UserInputError(f"the initial RAM disk is damaged: {error}") from error


def _unpacked(data: bytes, path: Path) -> bytes:
    """Return the archive that `data` begins with, unpacked, and what follows it."""
    try:
        if data.startswith(b"\x1f\x8b"):
            gzipped = zlib.decompressobj(31)
            unpacked, rest, whole = gzipped.decompress(data, MAX_UNPACKED), gzipped.unused_data, gzipped.eof
        elif data.startswith((b"\xfd7zXZ\0", b"\x5d\0\0")):
            lzmad = lzma.LZMADecompressor()
            unpacked, rest, whole = lzmad.decompress(data, MAX_UNPACKED), lzmad.unused_data, lzmad.eof
        else:
            unpacked, rest, whole = _by_tool(data, path), b"", True
    except OutputTooLong as error:
        raise _too_large(path) from error
    except (OSError, EOFError, lzma.LZMAError, zlib.error, CommandFailed) as error:
        raise UserInputError(f"{path} is damaged", details=str(error)) from error
    if not unpacked or not whole or len(unpacked) > MAX_UNPACKED:
        raise _too_large(path)
    return unpacked + rest


def _too_large(path: Path) -> UserInputError:
    return UserInputError(f"{path} is damaged, or unpacks to more than {notation.mebibytes(MAX_UNPACKED)}")


def _by_tool(data: bytes, path: Path) -> bytes:
    tool = {b"\x28\xb5\x2f\xfd": "zstd", b"\x02\x21\x4c\x18": "lz4", b"\x04\x22\x4d\x18": "lz4"}.get(data[:4])
    if tool is None:
        raise UserInputError(f"{path} has an unknown compression")
    argv = [require_tool(tool), "-d", "-c", "-q", "-f"]
    return run(argv, timeout_s=120, stdin_bytes=data, ok=(0, 1), most_bytes=MAX_UNPACKED).stdout


def rebuild(initrd: Path, root: Disk, small_init: Path, out: Path) -> tuple[str, ...]:
    """Write the small initial RAM disk, not compressed; returns the modules in it.

    Raises UserInputError when the root disk's file system is not known or the user's initial RAM disk lacks it."""
    kind = file_system(root)
    if not kind:
        raise UserInputError("the root disk's file system is not known: only whole raw disks can be mounted this way")
    with temporary.held_folder() as modules:
        for path, data in read(initrd).items():
            base = Path(path).name
            if ".ko" in base and "/kernel/" in path:
                (modules / "kernel").mkdir(exist_ok=True)
                (modules / "kernel" / base).write_bytes(data)
        order = load_order(modules, (*TRANSPORTS, *FILE_SYSTEMS[kind]))
    out.write_bytes(archive(order, small_init.read_bytes()))
    return tuple(one for one, _ in order)
