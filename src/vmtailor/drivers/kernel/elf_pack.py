# SPDX-License-Identifier: Apache-2.0
"""A stripped vmlinux without its holes.

The kernel is linked for 2 MB pages: text, read-only data and data begin at 2 MB boundaries. So do the code of entry and
its neighbours when page table isolation is built in. In memory that padding is freed again or costs nothing. In the
file it is megabytes of zeros and breakpoint instructions, which a monitor would read and copy. `pack` leaves the long
runs of padding out: each stretch between them becomes a loadable segment of its own. binutils cannot do this: strip and
objcopy keep the alignment of the segments."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vmtailor.base.errors import BuildError
from vmtailor.base.files import elf

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

# Shorter runs are kept: a segment header, and rounding, cost more than they save.
MIN_HOLE_BYTES = 64 * 1024

_PT_LOAD, _PT_NOTE = 1, 4
_EHDR = struct.Struct("<16sHHIQQQIHHHHHH")
_PHDR = struct.Struct("<IIQQQQQQ")
# Memory that nothing loads is zero, and padding between functions is never executed.
_RUN = re.compile(b"\x00{%d,}|\xcc{%d,}" % (MIN_HOLE_BYTES, MIN_HOLE_BYTES))
# A page of each run stays in front of its hole: speculation past the last instruction still meets breakpoints.
_GUARD_BYTES = 4096
_ALIGN = 16


@dataclass(frozen=True)
class Segment:
    """A program header."""

    kind: int
    flags: int
    offset: int
    virtual: int
    physical: int
    file_size: int
    memory_size: int
    align: int


def read_segments(data: bytes) -> tuple[int, int, tuple[Segment, ...]]:
    """Machine number, entry point and program headers of a 64-bit little-endian ELF. Raises BuildError for others."""
    try:
        return elf.read(data, lambda file: _segments(file, len(data)))
    except elf.NoElf as error:
        raise BuildError(
            "the kernel that was built is not a complete 64-bit ELF executable", details=str(error)
        ) from error


def _segments(file: ELFFile, size: int) -> tuple[int, int, tuple[Segment, ...]]:
    from elftools.elf.enums import ENUM_E_MACHINE, ENUM_P_TYPE_BASE

    if file["e_type"] != "ET_EXEC" or file["e_phentsize"] != _PHDR.size:
        raise elf.NoElf("it is not an executable")
    segments = []
    for one in file.iter_segments():
        where = one["p_offset"], one["p_vaddr"], one["p_paddr"], one["p_filesz"], one["p_memsz"], one["p_align"]
        if one["p_offset"] + one["p_filesz"] > size:
            raise elf.NoElf("it is truncated")
        segments.append(Segment(ENUM_P_TYPE_BASE.get(one["p_type"], 0), one["p_flags"], *where))
    return ENUM_E_MACHINE[file["e_machine"]], file["e_entry"], tuple(segments)


def split(data: bytes, segment: Segment) -> Iterator[Segment]:
    """Return the stretches of one loadable segment between long padding; its uninitialised tail stays with the last."""
    start, end = segment.offset, segment.offset + segment.file_size
    pieces: list[tuple[int, int]] = []
    for match in _RUN.finditer(data, start, end):
        pieces.append((start, match.start() + _GUARD_BYTES))
        start = match.end()
    if start < end or not pieces:
        pieces.append((start, end))
    for index, (first, last) in enumerate(pieces):
        delta = first - segment.offset
        size = last - first
        memory = size if index < len(pieces) - 1 else segment.memory_size - delta
        yield Segment(
            kind=segment.kind,
            flags=segment.flags,
            offset=first,
            virtual=segment.virtual + delta,
            physical=segment.physical + delta,
            file_size=size,
            memory_size=memory,
            align=_ALIGN,
        )


def pack(vmlinux: Path, target: Path, load_at: int = 0) -> None:
    """Write an ELF kernel to `target` without symbols, sections and long padding. Same input, same bytes. `load_at` is
    added to its physical addresses."""
    data = vmlinux.read_bytes()
    machine, entry, own = read_segments(data)
    segments = [replace(one, physical=one.physical + load_at) for one in own]
    loads = [piece for one in segments if one.kind == _PT_LOAD for piece in split(data, one)]
    notes = [one for one in segments if one.kind == _PT_NOTE]
    if not loads:
        raise BuildError("the kernel that was built has nothing to load")
    target.write_bytes(_assemble(data, machine, entry, [*loads, *notes]))


def _assemble(data: bytes, machine: int, entry: int, segments: Iterable[Segment]) -> bytes:
    kept = list(segments)
    ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    position = _EHDR.size + len(kept) * _PHDR.size
    headers, bodies = [], []
    for one in kept:
        # QEMU reads the notes with the alignment that their header names: it stays as it was.
        padding = (one.virtual - position) % one.align
        position += padding
        headers.append(
            _PHDR.pack(
                one.kind, one.flags, position, one.virtual, one.physical, one.file_size, one.memory_size, one.align
            )
        )
        bodies.append(bytes(padding) + data[one.offset : one.offset + one.file_size])
        position += one.file_size
    header = _EHDR.pack(
        ident, 2, machine, 1, entry, _EHDR.size, 0, 0, _EHDR.size, _PHDR.size, len(kept), 0, 0, 0
    )  # fmt: skip
    return b"".join([header, *headers, *bodies])
