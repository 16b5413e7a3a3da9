# SPDX-License-Identifier: Apache-2.0
"""A disk that the firmware of a PC boots, with BIOS or UEFI: a GPT with the root file system, GRUB, and a FAT file
system with the kernel. Nothing is mounted and no root is needed: sfdisk writes the table, mtools the files, and GRUB's
first sectors go where grub-install would put them."""

from __future__ import annotations

import os
import re
import struct
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vmtailor.base import process
from vmtailor.base.errors import HostError
from vmtailor.base.files.holes import stretches

SECTOR = 512
#: Partitions begin at whole MiB.
_ALIGN = 1 << 20
_TIMEOUT_S = 120
_TYPES = {
    "root": "0FC63DAF-8483-4772-8E79-3D69D8477DE4", "run": "0FC63DAF-8483-4772-8E79-3D69D8477DE4",
    "bios": "21686148-6449-6E6F-744E-656564454649", "efi": "C12A7328-F81F-11D2-BA4B-00A0C93EC93B",
}  # fmt: skip
#: Numbers of partitions. Init finds the run volume behind the root; GRUB's configuration names the last one.
NUMBERS = {"root": 1, "run": 2, "bios": 3, "efi": 4}
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


@dataclass(frozen=True)
class DiskPart:
    """A partition: its name in NUMBERS, where it begins and its length, in bytes, and its UUID."""

    name: str
    start: int
    length: int
    uuid: uuid.UUID

    @property
    def number(self) -> int:
        """Return its number in the table."""
        return NUMBERS[self.name]


def uuid_of(name: str, seed: str) -> uuid.UUID:
    """Return a partition's UUID. `seed`: it follows from it, so that equal exports are equal."""
    return uuid.uuid5(uuid.NAMESPACE_OID, f"vmtailor {seed} {name}")


def layout(lengths: Sequence[tuple[str, int]], seed: str) -> tuple[DiskPart, ...]:
    """Return partitions of at least these lengths, in bytes, one behind the other. `seed`: of `uuid_of`."""
    found, start = [], _ALIGN
    for name, length in lengths:
        whole = max(_ALIGN, -(-length // _ALIGN) * _ALIGN)
        found.append(DiskPart(name, start, whole, uuid_of(name, seed)))
        start += whole
    return tuple(found)


def table(parts: Sequence[DiskPart], seed: str) -> str:
    """Return what sfdisk makes a GPT of."""
    label = uuid.uuid5(uuid.NAMESPACE_OID, f"vmtailor {seed}")
    lines = [f"{part.number} : start={part.start // SECTOR}, size={part.length // SECTOR}, "
             f"type={_TYPES[part.name]}, uuid={part.uuid}, name={part.name}" for part in parts]  # fmt: skip
    return "\n".join(["label: gpt", f"label-id: {label}", "unit: sectors", *lines]) + "\n"


def plain_words(words: Sequence[str]) -> bool:
    """Return whether GRUB hands words on as they are: it puts backslashes before quotes."""
    return all(_PLAIN.fullmatch(word) for word in words)


def grub_lines(words: Sequence[str]) -> str:
    """Return GRUB's configuration, which its core holds: the kernel and its command line. `words` are `plain_words`."""
    quoted = " ".join(f"'{word}'" for word in words)
    return f"set gfxpayload=text\nlinux /{KERNEL} {quoted}\nboot\n"


@dataclass(frozen=True)
class DiskContent:
    """Files on a disk: root file system, bzImage, unified kernel image. `run`: the run volume's bytes."""

    root: Path
    kernel: Path
    unified: Path
    run: bytes | None = None

    def lengths(self) -> tuple[tuple[str, int], ...]:
        """Return the least lengths of its partitions, in bytes."""
        files = self.kernel.stat().st_size + self.unified.stat().st_size
        found = [("root", self.root.stat().st_size)]
        found += [("run", len(self.run))] if self.run is not None else []
        return (*found, ("bios", _CORE_BYTES), ("efi", _EFI_BYTES + files))


def write(disk: Path, content: DiskContent, words: Sequence[str], seed: str, scratch: Path) -> None:
    """Write a raw disk with both loaders. `scratch`: a folder for files on the way. Raises HostError without sfdisk,
    mtools or GRUB."""
    parts = layout(content.lengths(), seed)
    by_name = {part.name: part for part in parts}
    with disk.open("xb") as made:
        made.truncate(parts[-1].start + parts[-1].length + _ALIGN)
    sfdisk = [process.require_tool("sfdisk", "fdisk"), "--quiet", "--no-tell-kernel", "--no-reread", str(disk)]
    process.run(sfdisk, stdin_bytes=table(parts, seed).encode(), timeout_s=_TIMEOUT_S)
    efi, core = scratch / "efi.img", scratch / "core.img"
    _fat(efi, by_name["efi"], content)
    _core(core, words)
    with disk.open("r+b") as made:
        _place(made.fileno(), content.root, by_name["root"].start)
        _place(made.fileno(), efi, by_name["efi"].start)
        if content.run is not None:
            os.pwrite(made.fileno(), content.run, by_name["run"].start)
        first, rest = grub_sectors((_GRUB / "boot.img").read_bytes(), core.read_bytes(), by_name["bios"])
        os.pwrite(made.fileno(), first, 0)
        os.pwrite(made.fileno(), rest, by_name["bios"].start)


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


def _core(target: Path, words: Sequence[str]) -> None:
    tool = process.require_tool("grub-mkimage", "grub-common")
    if not (_GRUB / "boot.img").is_file():
        raise HostError(f"{_GRUB} is missing: a BIOS starts the kernel by GRUB", hint=f"install {_GRUB_PACKAGE}")
    lines = target.with_suffix(".cfg")
    lines.write_text(grub_lines(words))
    argv = [tool, "-O", _GRUB.name, "-d", str(_GRUB), "-p", f"(,gpt{NUMBERS['efi']})/", "-c", str(lines),
            "-o", str(target), *_MODULES]  # fmt: skip
    process.run(argv, timeout_s=_TIMEOUT_S)


def _fat(target: Path, part: DiskPart, content: DiskContent) -> None:
    """Write a FAT file system with the kernel, and the program that UEFI firmware starts by itself."""
    env = {"PATH": os.environ.get("PATH", ""), "MTOOLS_SKIP_CHECK": "1", "SOURCE_DATE_EPOCH": "1767225600"}
    with target.open("xb") as made:
        made.truncate(part.length)
    serial = f"{part.uuid.int & 0xFFFFFFFF:08x}"
    calls = [["mformat", "-i", str(target), "-v", "VMTAILOR", "-N", serial, "-T", str(part.length // SECTOR), "::"]]
    folder = ""
    for name in UEFI_PROGRAM.split("/")[:-1]:
        folder += f"/{name}"
        calls.append(["mmd", "-i", str(target), f"::{folder}"])
    for source, name in ((content.kernel, KERNEL), (content.unified, UEFI_PROGRAM)):
        calls.append(["mcopy", "-i", str(target), str(source), f"::/{name}"])
    for tool, *rest in calls:
        process.run([process.require_tool(tool, "mtools"), *rest], timeout_s=_TIMEOUT_S, env=env)


def _place(disk: int, source: Path, start: int) -> None:
    """Copy a file into a disk, without its holes."""
    with source.open("rb") as given:
        for begin, end in stretches(given.fileno(), 0, source.stat().st_size):
            at = begin
            while at < end:
                data = os.pread(given.fileno(), min(end - at, 4 << 20), at)
                os.pwrite(disk, data, start + at)
                at += len(data)
