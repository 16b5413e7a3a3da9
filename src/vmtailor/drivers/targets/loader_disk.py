# SPDX-License-Identifier: Apache-2.0
"""A disk that the firmware of a PC boots, with BIOS or UEFI: a GPT with the root file system, GRUB, and a FAT file
system with the kernel. Nothing is mounted and no root is needed: sfdisk writes the table, mtools the files, and GRUB's
first sectors go where grub-install would put them."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vmtailor.base import process
from vmtailor.base.errors import HostError
from vmtailor.base.files.holes import stretches
from vmtailor.drivers.targets import disk_table
from vmtailor.drivers.targets.disk_table import ALIGN, SECTOR, DiskPart
from vmtailor.drivers.targets.system_parts import SystemParts

_TIMEOUT_S = 120
#: GRUB's files for the firmware of PCs that is no UEFI; the folder is called as grub-mkimage calls that.
_GRUB = next(iter(sorted(Path("/usr/lib/grub").glob("*-pc"))), Path("/usr/lib/grub/pc"))
_GRUB_PACKAGE = "grub-pc-bin"
_MODULES = ("biosdisk", "part_gpt", "fat", "linux")
#: Room for GRUB's core, and least room of the FAT file system: UEFI wants FAT12, 16 or 32 by size.
_CORE_BYTES, _EFI_BYTES = 1 << 20, 16 << 20
#: In GRUB's first sector: where its core begins; in the core's first: where the rest of it begins, and its sectors.
_CORE_AT, _REST_AT = 0x5C, 0x1F4
_BOOT_CODE_BYTES = 440
_PLAIN = re.compile(r"[!#-&(-\[\]-~]+")
KERNEL, UEFI_PROGRAM = "vmlinuz", "EFI/BOOT/BOOTX64.EFI"


def plain_words(words: Sequence[str]) -> bool:
    """Return whether GRUB hands words on as they are: it puts backslashes before quotes."""
    return all(_PLAIN.fullmatch(word) for word in words)


def grub_lines(words: Sequence[str]) -> str:
    """Return GRUB's configuration, which its core holds: the kernel and its command line. `words` are `plain_words`."""
    quoted = " ".join(f"'{word}'" for word in words)
    return f"set gfxpayload=text\nlinux /{KERNEL} {quoted}\nboot\n"


@dataclass(frozen=True)
class DiskContent:
    """Files on a disk: root file system, bzImage, unified kernel image. `run`: the run volume's bytes. `system`: the
    partitions of a system's disk, in place of `root`."""

    root: Path
    kernel: Path
    unified: Path
    run: bytes | None = None
    system: SystemParts | None = None

    def parts(self, seed: str) -> tuple[DiskPart, ...]:
        """Return its partitions, those of the loaders last. `seed`: of their UUIDs."""
        efi = _EFI_BYTES + self.kernel.stat().st_size + self.unified.stat().st_size
        if self.system is not None:
            return self.system.placed(_CORE_BYTES, efi)
        found = [("root", self.root.stat().st_size)]
        found += [("run", len(self.run))] if self.run is not None else []
        return disk_table.layout((*found, ("bios", _CORE_BYTES), ("efi", efi)), seed)


def write(disk: Path, content: DiskContent, words: Sequence[str], seed: str, scratch: Path) -> None:
    """Write a raw disk with both loaders. `scratch`: a folder for files on the way. Raises HostError without sfdisk,
    mtools or GRUB."""
    parts = content.parts(seed)
    *own, bios, loaders = parts
    with disk.open("xb") as made:
        made.truncate(parts[-1].end + ALIGN)
    sfdisk = [process.require_tool("sfdisk", "fdisk"), "--quiet", "--no-tell-kernel", "--no-reread", str(disk)]
    process.run(sfdisk, stdin_bytes=disk_table.table(parts, seed).encode(), timeout_s=_TIMEOUT_S)
    efi, core = scratch / "efi.img", scratch / "core.img"
    _fat(efi, loaders, content)
    _core(core, words, loaders.number)
    with disk.open("r+b") as made:
        if content.system is not None:
            for one in content.system.kept:
                _place(made.fileno(), content.system.raw, one.part.start, one.at, one.part.length)
        else:
            _place(made.fileno(), content.root, own[0].start)
        _place(made.fileno(), efi, loaders.start)
        if content.run is not None:
            os.pwrite(made.fileno(), content.run, own[1].start)
        first, rest = grub_sectors((_GRUB / "boot.img").read_bytes(), core.read_bytes(), bios)
        os.pwrite(made.fileno(), first, 0)
        os.pwrite(made.fileno(), rest, bios.start)


def grub_sectors(boot: bytes, core: bytes, part: DiskPart) -> tuple[bytes, bytes]:
    """Return GRUB's code of the first sector, without the table, and its core as it lies in a partition. Raises
    HostError where the core does not fit there."""
    at = part.start // SECTOR
    first, rest = bytearray(boot[:_BOOT_CODE_BYTES]), bytearray(core)
    if len(boot) != SECTOR or not SECTOR < len(core) <= part.length:
        raise HostError("GRUB's files are not as they were expected", hint=f"install {_GRUB_PACKAGE} again")
    struct.pack_into("<Q", first, _CORE_AT, at)
    struct.pack_into("<QH", rest, _REST_AT, at + 1, -(-len(core) // SECTOR) - 1)
    return bytes(first), bytes(rest)


def _core(target: Path, words: Sequence[str], efi: int) -> None:
    tool = process.require_tool("grub-mkimage", "grub-common")
    if not (_GRUB / "boot.img").is_file():
        raise HostError(f"{_GRUB} is missing: a BIOS starts the kernel by GRUB", hint=f"install {_GRUB_PACKAGE}")
    lines = target.with_suffix(".cfg")
    lines.write_text(grub_lines(words))
    argv = [tool, "-O", _GRUB.name, "-d", str(_GRUB), "-p", f"(,gpt{efi})/", "-c", str(lines),
            "-o", str(target), *_MODULES]  # fmt: skip
    process.run(argv, timeout_s=_TIMEOUT_S)


def _fat(target: Path, part: DiskPart, content: DiskContent) -> None:
    """Write a FAT file system with the kernel, and the program that UEFI firmware starts by itself."""
    env = {"PATH": os.environ.get("PATH", ""), "MTOOLS_SKIP_CHECK": "1", "SOURCE_DATE_EPOCH": "1767225600"}
    with target.open("xb") as made:
        made.truncate(part.length)
    old = content.system
    serial = (old.serial if old is not None else "") or f"{part.uuid.int & 0xFFFFFFFF:08x}"
    label = (old.label if old is not None else "") or "VMTAILOR"
    calls = [["mformat", "-i", str(target), "-v", label, "-N", serial, "-T", str(part.length // SECTOR), "::"]]
    folder = ""
    for name in UEFI_PROGRAM.split("/")[:-1]:
        folder += f"/{name}"
        calls.append(["mmd", "-i", str(target), f"::{folder}"])
    for source, name in ((content.kernel, KERNEL), (content.unified, UEFI_PROGRAM)):
        calls.append(["mcopy", "-i", str(target), str(source), f"::/{name}"])
    for tool, *rest in calls:
        process.run([process.require_tool(tool, "mtools"), *rest], timeout_s=_TIMEOUT_S, env=env)


def _place(disk: int, source: Path, start: int, at: int = 0, length: int | None = None) -> None:
    """Copy a file into a disk, from its byte `at` on, without its holes."""
    with source.open("rb") as given:
        size = source.stat().st_size if length is None else min(source.stat().st_size, at + length)
        for begin, end in stretches(given.fileno(), at, size):
            here, to = max(begin, at), min(end, size)
            while here < to:
                data = os.pread(given.fileno(), min(to - here, 4 << 20), here)
                os.pwrite(disk, data, start + here - at)
                here += len(data)
