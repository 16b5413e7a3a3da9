# SPDX-License-Identifier: Apache-2.0
"""A guest image as Kata Containers has them, with a script as its init: an MBR, metadata for direct access (DAX), a
second MBR at 2 MiB, and an ext4 partition. On persistent memory the kernel reads the second table, elsewhere the
first."""

from __future__ import annotations

import struct
import uuid
from pathlib import Path

from tests.fakes import systems

MIB = 1 << 20
#: The metadata lie at 4 KiB, and the memory that they describe begins at 2 MiB (struct nd_pfn_sb of the kernel).
_HEADER_AT, _DATA_AT = 4096, 2 * MIB
#: Whole memory blocks, as Kata's images are: memory that is plugged in lies behind persistent memory.
_IMAGE_MIB, _ROOT_MIB = 128, 60
APPLETS = "sh mount grep ls cat echo sleep reboot unshare true seq mkdir awk"


def header(size: int) -> bytes:
    """The metadata of an image of `size` bytes: mode RAM, with the checksum that the kernel asks for."""
    made = bytearray(4096)
    pages = (size - _DATA_AT) // 4096
    struct.pack_into(
        "<16s16s16sIHHQQIIIIIH", made, 0, b"NVDIMM_PFN_INFO", uuid.uuid5(uuid.NAMESPACE_OID, "image").bytes,
        b"", 0, 1, 4, _DATA_AT, pages, 1, 0, 0, _DATA_AT, 4096, 64,
    )  # fmt: skip
    low = high = 0
    for word in struct.unpack("<1024I", made):
        low = (low + word) & 0xFFFFFFFF
        high = (high + low) & 0xFFFFFFFF
    struct.pack_into("<Q", made, 4088, high << 32 | low)
    return bytes(made)


def write(image: Path, root: Path, init: str) -> Path:
    """Write an image; `root`: a folder for its tree; `init`: a script for busybox's shell."""
    systems.put(root, "bin/busybox", Path("/usr/bin/busybox").read_bytes())
    for name in APPLETS.split():
        systems.put(root, f"bin/{name}", "-> busybox")
    systems.put(root, "sbin/init", init)
    for name in ("bin/busybox", "sbin/init"):
        (root / name).chmod(0o755)
    for name in ("proc", "sys", "dev", "mnt", "tmp"):
        (root / name).mkdir()
    with image.open("wb") as file:
        file.truncate(_IMAGE_MIB * MIB)
    second = image.with_suffix(".table")
    for disk, start, length in ((second, 1, _IMAGE_MIB - 2), (image, 3, _IMAGE_MIB)):
        with disk.open("r+b" if disk == image else "wb") as file:
            file.truncate(length * MIB)
        systems.tool("sfdisk", "-q", disk, data=f"label: dos\nstart={start * 2048},size={_ROOT_MIB * 2048},type=83\n")
    systems.tool(
        "mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", "-E", f"offset={3 * MIB}", "-d", root, image, f"{_ROOT_MIB}M"
    )
    systems.patched(image, _DATA_AT, second.read_bytes()[:512])
    return systems.patched(image, _HEADER_AT, header(_IMAGE_MIB * MIB))
