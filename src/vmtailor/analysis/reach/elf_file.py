# SPDX-License-Identifier: Apache-2.0
"""ELF files of strangers, within bounds: what they need, import and export, where their code and constants lie.

pyelftools walks tables entry by entry, for as long as a file says they are. Here tables are cut to the file's own size,
and read as arrays. Malformed entries are left out: a damaged file asks for less, and takes no longer."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from vmtailor.base.files.elf import NoElf, identity

Numbers = NDArray[np.int64]

#: Bounds on what is looked at in one file.
_MOST_SEGMENTS = 128
_MOST_SECTIONS = 256
_MOST_TAGS = 4096
_MOST_SYMBOLS = 1 << 20
_MOST_RELOCATIONS = 1 << 20
_LONGEST_NAME = 1024

_PT_LOAD, _PT_DYNAMIC, _PT_INTERP, _PT_EH_FRAME_HDR = 1, 2, 3, 0x6474E550
_SHT_SYMTAB, _SHT_DYNSYM = 2, 11
_NEEDED, _STRTAB, _SYMTAB, _RELA, _RELASZ, _STRSZ, _SONAME, _RPATH, _JMPREL, _PLTRELSZ, _RUNPATH = (
    1, 5, 6, 7, 8, 10, 14, 15, 23, 2, 29,
)  # fmt: skip
_INIT, _INIT_ARRAY, _INIT_ARRAYSZ, _HASH, _RELR, _RELRSZ = 12, 25, 27, 4, 36, 35
_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
_RELOCATION = np.dtype([("slot", "<u8"), ("kind", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])
_FUNCTION_KINDS = (2, 10)  # STT_FUNC, STT_GNU_IFUNC


@dataclass(frozen=True)
class LoadSegment:
    """A part of the file that is loaded at an address."""

    address: int
    offset: int
    size: int
    executable: bool
    writable: bool


@dataclass
class ElfFile:
    """A 64-bit little-endian one. Raises NoElf when its header makes no sense."""

    data: bytes
    entry: int = 0
    fixed: bool = False
    segments: tuple[LoadSegment, ...] = ()
    interpreter: str = ""
    needed: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()
    soname: str = ""
    dynamic: dict[int, int] = field(default_factory=dict)
    _headers: list[tuple[int, int, int, int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        data = self.data
        told = identity(data[:64])
        if len(data) < 64 or told.bits != 64 or not told.little:
            raise NoElf
        self.entry, table = struct.unpack_from("<QQ", data, 24)
        self.fixed = told.kind == 2
        size, count = struct.unpack_from("<HH", data, 54)
        if size < 56:
            raise NoElf
        for at in range(table, min(table + size * min(count, _MOST_SEGMENTS), len(data) - 55), size):
            kind, flags, offset, address, _, length = struct.unpack_from("<IIQQQQ", data, at)
            length = max(0, min(length, len(data) - offset))
            if address + length < 1 << 62:
                self._headers.append((kind, flags, offset, address, length))
        left, found = 2 * len(data), list[LoadSegment]()
        for kind, flags, offset, address, length in self._headers:
            if (
                kind == _PT_LOAD and 0 < length <= left
            ):  # a part is loaded once; many times the same is work for nothing
                left -= length
                found.append(
                    LoadSegment(
                        address=address,
                        offset=offset,
                        size=length,
                        executable=bool(flags & 1),
                        writable=bool(flags & 2),
                    )
                )
        self.segments = tuple(found)
        self._read_dynamic()

    def _header(self, wanted: int) -> tuple[int, int, int] | None:
        found = (one for one in self._headers if one[0] == wanted)
        return next(((offset, address, length) for _, _, offset, address, length in found), None)

    def _read_dynamic(self) -> None:
        if (named := self._header(_PT_INTERP)) is not None:
            self.interpreter = self._text(named[0], named[0] + named[2])
        found = self._header(_PT_DYNAMIC)
        if found is None:
            return
        count = min(found[2] // 16, _MOST_TAGS)
        tags = struct.unpack_from(f"<{2 * count}Q", self.data, found[0])
        several: list[tuple[int, int]] = []
        for tag, value in zip(tags[::2], tags[1::2], strict=True):
            if tag == 0:
                break
            if tag in (_NEEDED, _SONAME, _RPATH, _RUNPATH):
                several.append((tag, value))
            self.dynamic.setdefault(tag, value)
        names = self.offset_of(self.dynamic.get(_STRTAB, 0))
        if names is None:
            return
        end = names + self.dynamic.get(_STRSZ, 0)
        text = {tag: [self._text(names + value, end) for one, value in several if one == tag] for tag, _ in several}
        self.needed = tuple(dict.fromkeys(name for name in text.get(_NEEDED, ()) if name))
        self.soname = next(iter(text.get(_SONAME, ())), "")
        paths = text.get(_RUNPATH) or text.get(_RPATH) or []
        self.runpath = tuple(part for path in paths for part in path.split(":") if part)

    def _text(self, start: int, end: int) -> str:
        piece = self.data[start : min(end, start + _LONGEST_NAME)]
        return piece.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")

    def offset_of(self, address: int) -> int | None:
        """Return the place of an address in the file; None where it has none."""
        for one in self.segments:
            if one.address <= address < one.address + one.size:
                return one.offset + address - one.address
        return None

    def _table(self, offset: int, size: int, kind: np.dtype[np.void], most: int) -> NDArray[np.void]:
        count = max(0, min(size, len(self.data) - offset)) // kind.itemsize
        if offset < 0 or count == 0:
            return np.empty(0, kind)
        return np.frombuffer(self.data, kind, min(count, most), offset)

    # ---- sections, where there are some

    @cached_property
    def sections(self) -> list[tuple[int, int, int, int, int, int]]:
        """Return kind, flags, address, offset, size and link of each section."""
        (table,) = struct.unpack_from("<Q", self.data, 40)
        size, count = struct.unpack_from("<HH", self.data, 58)
        found = []
        if size >= 64:
            for at in range(table, min(table + size * min(count, _MOST_SECTIONS), len(self.data) - 63), size):
                kind, flags, address, offset, length, link = struct.unpack_from("<4xIQQQQI", self.data, at)
                found.append((kind, flags, address, offset, min(length, max(0, len(self.data) - offset)), link))
        return found

    # ---- symbols

    @cached_property
    def dynamic_symbols(self) -> NDArray[np.void]:
        at = self.offset_of(self.dynamic.get(_SYMTAB, 0)) if _SYMTAB in self.dynamic else None
        return (
            np.empty(0, _SYMBOL) if at is None else self._table(at, 24 * self._symbol_count(at), _SYMBOL, _MOST_SYMBOLS)
        )

    def _symbol_count(self, at: int) -> int:
        """By the section, the hash table, or the names that usually follow."""
        for kind, _, _, offset, size, _ in self.sections:
            if kind == _SHT_DYNSYM and offset == at:
                return size // 24
        table = self.offset_of(self.dynamic.get(_HASH, 0)) if _HASH in self.dynamic else None
        if table is not None and table + 8 <= len(self.data):
            return int(struct.unpack_from("<I", self.data, table + 4)[0])
        names = self.offset_of(self.dynamic.get(_STRTAB, 0))
        return max(0, names - at) // 24 if names is not None else 0

    @cached_property
    def symbol_names(self) -> list[str]:
        """Return the names of the dynamic symbols, in their order."""
        start = self.offset_of(self.dynamic.get(_STRTAB, 0)) or 0
        return self._names(self.dynamic_symbols, start, self.dynamic.get(_STRSZ, 0))

    def _names(self, symbols: NDArray[np.void], start: int, size: int) -> list[str]:
        # A table whose names overlap without an end would be read again for each: all of them have one budget.
        left, names = 4 * len(self.data) + (1 << 20), []
        end = min(start + size, len(self.data))
        for at in symbols["name"].tolist():
            first = start + at
            stop = self.data.find(b"\0", first, min(end, first + _LONGEST_NAME)) if first < end and left > 0 else -1
            left -= max(0, stop - first) + 1
            names.append(self.data[first:stop].decode("utf-8", "surrogateescape") if stop > first else "")
        return names

    @cached_property
    def imports(self) -> tuple[str, ...]:
        table = self.dynamic_symbols
        taken = np.flatnonzero(table["section"] == 0).tolist()
        return tuple(sorted({self.symbol_names[index] for index in taken} - {""}))

    @cached_property
    def exports(self) -> dict[str, tuple[int, ...]]:
        """Return name → addresses of functions, and of data: several where there are versions."""
        table = self.dynamic_symbols
        found: dict[str, tuple[int, ...]] = {}
        for index in np.flatnonzero((table["section"] != 0) & (table["info"] >> 4 != 0)).tolist():
            name = self.symbol_names[index]
            if name:
                found[name] = (*found.get(name, ()), int(table["value"][index]))
        return found

    @cached_property
    def static_functions(self) -> Numbers:
        """Return addresses of functions in the symbol table, where one was left."""
        for kind, _, _, offset, size, _ in self.sections:
            if kind == _SHT_SYMTAB:
                return self._functions(self._table(offset, size, _SYMBOL, _MOST_SYMBOLS))
        return np.empty(0, np.int64)

    @staticmethod
    def _functions(table: NDArray[np.void]) -> Numbers:
        chosen = np.isin(table["info"] & 15, _FUNCTION_KINDS) & (table["section"] != 0)
        return np.asarray(table["value"][chosen], np.int64)

    # ---- relocations

    @cached_property
    def relocations(self) -> NDArray[np.void]:
        """Return the relocations with an addend, of the dynamic tables, or of a static program's own sections."""
        parts = []
        for start, size in ((_RELA, _RELASZ), (_JMPREL, _PLTRELSZ)):
            at = self.offset_of(self.dynamic.get(start, 0)) if start in self.dynamic else None
            if at is not None:
                parts.append(self._table(at, self.dynamic.get(size, 0), _RELOCATION, _MOST_RELOCATIONS))
        if not self.dynamic:
            for kind, _, _, offset, size, _ in self.sections:
                if kind == 4:
                    parts.append(self._table(offset, size, _RELOCATION, _MOST_RELOCATIONS))
        return np.concatenate(parts) if parts else np.empty(0, _RELOCATION)

    @cached_property
    def relative_slots(self) -> Numbers:
        """Return addresses of the packed relative relocations (RELR), whose addends stand in place."""
        at = self.offset_of(self.dynamic.get(_RELR, 0)) if _RELR in self.dynamic else None
        if at is None:
            return np.empty(0, np.int64)
        words = np.frombuffer(self.data, "<u8", min(self.dynamic.get(_RELRSZ, 0), len(self.data) - at) // 8, at)
        found: list[int] = []
        base = 0
        for word in words[: _MOST_RELOCATIONS // 63].tolist():
            if word & 1:
                found += [base + 8 * bit for bit in range(63) if word >> (bit + 1) & 1]
                base += 63 * 8
            else:
                found.append(word)
                base = word + 8
        return np.asarray([one for one in found if one < 1 << 62], np.int64)

    def words_at(self, addresses: Numbers) -> Numbers:
        """Return the 8-byte words at these addresses; 0 where the file has none."""
        found = np.zeros(len(addresses), np.int64)
        for one in self.segments:
            inside = (addresses >= one.address) & (addresses <= one.address + one.size - 8)
            at = addresses[inside] - one.address + one.offset
            if len(at):
                raw = np.frombuffer(self.data, np.uint8)
                found[inside] = sum(
                    (raw[at + byte].astype(np.int64) << np.int64(8 * byte) for byte in range(8)),
                    np.zeros(len(at), np.int64),
                )
        return found

    # ---- code and constants

    @cached_property
    def code(self) -> tuple[LoadSegment, ...]:
        """Return parts with instructions: sections where they are told, otherwise segments."""
        return tuple(one for one in self.segments if one.executable)

    @cached_property
    def begun_by_itself(self) -> tuple[int, ...]:
        """Return addresses of what runs without being called by name: entry, constructors."""
        found = [self.entry, self.dynamic.get(_INIT, 0)]
        at = self.dynamic.get(_INIT_ARRAY, 0)
        count = min(self.dynamic.get(_INIT_ARRAYSZ, 0) // 8, 4096)
        arrays = [(at, count)] if at else []
        arrays += [(a, min(size // 8, 4096)) for kind, _, a, _, size, _ in self.sections if kind in (14, 15, 16)]
        for start, length in arrays:
            if 0 < start < 1 << 62:
                found += self.words_at(np.arange(start, start + 8 * length, 8, dtype=np.int64)).tolist()
        return tuple(dict.fromkeys(one for one in found if one))

    @cached_property
    def frame_starts(self) -> Numbers:
        """Return the begins of functions, by the sorted table of .eh_frame_hdr; empty where there is none."""
        found = self._header(_PT_EH_FRAME_HDR)
        if found is None or found[2] < 12:
            return np.empty(0, np.int64)
        offset, address, size = found
        version, _, counted, table = struct.unpack_from("<4B", self.data, offset)
        # The forms that linkers write: the pointer in 4 bytes, the count in 4, pairs of 4 relative to the header.
        if version != 1 or counted != 0x03 or table != 0x3B:
            return np.empty(0, np.int64)
        (count,) = struct.unpack_from("<I", self.data, offset + 8)
        count = min(count, (size - 12) // 8, _MOST_SYMBOLS)
        pairs = np.frombuffer(self.data, "<i4", 2 * max(0, count), offset + 12)
        return pairs[::2].astype(np.int64) + address
