# SPDX-License-Identifier: Apache-2.0
"""ELF files of this host and of our own making, read by pyelftools; and the first bytes of any ELF file.

The library is not for files of strangers: a small one can keep it busy for hours (names without an end). Those are read
within bounds by `natives.elf_symbols`, `interpreter_of` and `analysis/reach/elf_file.py`.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

Found = TypeVar("Found")

#: Bytes of a script that the kernel reads for its first line.
SCRIPT_BYTES = 256
_PT_INTERP = 3


class NoElf(Exception):
    """This is no ELF file of the kind that is read, or a damaged one."""


@dataclass(frozen=True)
class Identity:
    """The facts of the first bytes. `bits`: 32 or 64."""

    bits: int
    little: bool
    machine: int
    kind: int  # 2: at a fixed address, 3: anywhere


def identity(head: bytes) -> Identity:
    """Return the facts of a file's first bytes. Raises NoElf."""
    if head[:4] != b"\x7fELF" or len(head) < 20 or head[4] not in (1, 2) or head[5] not in (1, 2):
        raise NoElf
    kind, machine = struct.unpack_from("<HH" if head[5] == 1 else ">HH", head, 16)
    return Identity(32 * head[4], head[5] == 1, machine, kind)


def read(data: bytes, ask: Callable[[ELFFile], Found]) -> Found:
    """Return what `ask` finds in a file. Raises NoElf."""
    # Imported late: the library takes 50 ms, and most starts find what they need in the cache.
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        elf = ELFFile(io.BytesIO(data))
        if elf.elfclass != 64 or not elf.little_endian:
            raise NoElf("it is not of the 64-bit little-endian kind")
        # The library would go through as many headers as the file says, of whatever size.
        if elf.num_sections() and not 0 < elf.num_sections() * elf["e_shentsize"] <= len(data):
            raise NoElf("its sections are not in it")
        return ask(elf)
    # The library checks little: what a damaged file makes of its figures and names ends in one of these.
    except (ELFError, ValueError, LookupError, TypeError, AttributeError, AssertionError, OverflowError) as error:
        raise NoElf(str(error)) from error


def section(data: bytes, name: str) -> bytes:
    """Return the content of one section; empty when there is none, or no ELF file."""

    def content(elf: ELFFile) -> bytes:
        found = elf.get_section_by_name(name)
        return b"" if found is None else bytes(found.data())

    try:
        return read(data, content)
    except NoElf:
        return b""


def shared_name(data: bytes) -> str:
    """Return the name by which programs need a shared library; empty where it has none."""
    return next(iter(_dynamic(data, "DT_SONAME", "soname")), "")


def needed(data: bytes) -> tuple[str, ...]:
    """Return the shared libraries that a program or library names, by what they are called."""
    return _dynamic(data, "DT_NEEDED", "needed")


def _dynamic(data: bytes, tag: str, attribute: str) -> tuple[str, ...]:
    def names(elf: ELFFile) -> tuple[str, ...]:
        found = (one.iter_tags(tag) for one in elf.iter_segments("PT_DYNAMIC"))  # type: ignore[attr-defined]
        return tuple(str(getattr(entry, attribute)) for tags in found for entry in tags)

    try:
        return read(data, names)
    except NoElf:
        return ()


def interpreter(data: bytes) -> str:
    """Return the loader that a program names; empty for a static one, and for what is no ELF file."""

    def name(elf: ELFFile) -> str:
        return next((str(one.get_interp_name()) for one in elf.iter_segments("PT_INTERP")), "")  # type: ignore[attr-defined]

    try:
        return read(data, name)
    except NoElf:
        return ""


def interpreter_of(head: bytes) -> str | None:
    """Return the interpreter that a script (`#!`) or a dynamic program (PT_INTERP) names, from its first bytes. The
    result is None where it has none, or where these bytes do not say it."""
    if head.startswith(b"#!"):
        words = head[2:SCRIPT_BYTES].split(b"\n", 1)[0].split()
        return words[0].decode("utf-8", "surrogateescape") if words else None
    if not head.startswith(b"\x7fELF") or len(head) < 64:
        return None
    order = ">" if head[5] == 2 else "<"
    wide = head[4] == 2
    try:
        table = struct.unpack_from(order + ("Q" if wide else "I"), head, 32 if wide else 28)[0]
        size, count = struct.unpack_from(order + "HH", head, 54 if wide else 42)
        for at in range(table, table + size * min(count, 64), size or 1):
            if struct.unpack_from(order + "I", head, at)[0] == _PT_INTERP:
                offset = struct.unpack_from(order + ("Q" if wide else "I"), head, at + (8 if wide else 4))[0]
                text = head[offset : offset + SCRIPT_BYTES].split(b"\0", 1)[0]
                return text.decode("utf-8", "surrogateescape") or None
    except (struct.error, OverflowError):
        return None  # an odd one: the kernel will say what it thinks of it
    return None
