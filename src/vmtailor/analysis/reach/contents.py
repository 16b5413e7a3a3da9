# SPDX-License-Identifier: Apache-2.0
"""Read what one file of an image says by itself. The result is kept by the file's digest, so that each is read once."""

from __future__ import annotations

import re
import struct
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar

from vmtailor.analysis.reach.elf_file import ElfFile
from vmtailor.analysis.reach.program import Program
from vmtailor.base.files.elf import NoElf, identity
from vmtailor.model.architecture import narrow_numbers
from vmtailor.model.code_patterns import MachineCode

#: A file with more is known by imports and strings alone.
MOST_CODE = 160 << 20
#: Calls from a C library's function to where a path is named: farther away lie what it does when all goes wrong, and
#: the settings that it reads for itself.
_NEAR = 2
#: Code whose calls are followed, and functions that are passed on the way in all.
_MOST_FOLLOWED = 64 << 20
_MOST_STEPS = 20_000_000
#: A library with so many kinds of system calls in its own code is told apart function by function: a C library.
_C_LIBRARY = 8
_MOST_STRINGS = 2000
_SCRIPT_WORDS = 4000
SCRIPT_BYTES = 1 << 20
_PATHS = re.compile(rb"/(?:proc|sys|dev)/[!-~]{1,200}(?=\0)")
_PROGRAMS = re.compile(rb"/(?:(?:usr/(?:local/)?)?s?bin|usr/lib(?:exec)?|opt)/[\w./+-]{1,200}(?=\0)")
_WORDS = re.compile(rb"[A-Z][A-Z0-9]{0,30}_[A-Z0-9_]{1,40}(?=\0)")
#: Strings of which rules speak by a pattern: short, and made of what names are made of.
_NAMES = re.compile(rb"(?:user|trusted|security|system)\.[a-z_.]{1,60}(?=\0)|(?:tls|bbr|cubic)(?=\0)")
_SCRIPT_PATHS = re.compile(rb"/(?:proc|sys|dev)/[\w./-]{1,200}")
_SHELL_WORDS = re.compile(rb"(?<![\w./$-])(?:/[\w.+/-]{1,200}|[a-z][\w.+-]{1,40})(?![\w./])")


class FileKind(StrEnum):
    ELF = "ELF"
    ELF32 = "ELF32"  # of the image's own family, with 32 bits
    FOREIGN = "foreign"  # a program for another processor
    SCRIPT = "#!"
    OTHER = ""


@dataclass(frozen=True)
class Called:
    """The targets of code: numbers of system calls, each with the address of one instruction that makes it; names of
    other files' functions; strings that are paths."""

    numbers: tuple[tuple[int, int], ...] = ()
    names: tuple[str, ...] = ()
    strings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Given:
    """A call of a function: its name, the constants that it is given at which positions, and the place. Unknown
    constants are missing."""

    name: str
    constants: tuple[tuple[int, int], ...]
    address: int


@dataclass(frozen=True)
class Contents:
    """`own`: what its code leads to by itself: all of it, but in C libraries and static programs only what runs from
    the entry on. `functions`: exported name → place in `called`, for C libraries. `takers`: exported functions that
    take a system call's number, and the position of that argument. `words`, `names`, `paths` and `programs` are whole
    strings of it, of a script words; paths of a C library or a static program are told with the code that uses them.
    `machine` and `flags`: of the header of a program of 32 bits."""

    SCHEMA: ClassVar[str] = "vmtailor/file-contents/1"

    kind: FileKind = FileKind.OTHER
    interpreter: str = ""
    interpreter_words: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()
    soname: str = ""
    library: bool = False
    imports: tuple[str, ...] = ()
    exports: tuple[str, ...] = ()
    own: Called = Called()
    functions: dict[str, int] | None = None
    called: tuple[Called, ...] = ()
    takers: tuple[tuple[str, int], ...] = ()
    given: tuple[Given, ...] = ()
    words: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    not_read: str = ""
    machine: int = 0
    flags: int = 0


@dataclass(frozen=True)
class WantedNames:
    """The names to look for: words of arguments, and functions whose arguments matter."""

    words: frozenset[str]
    functions: frozenset[str]


def read(data: bytes, code: MachineCode | None, wanted: WantedNames) -> Contents:
    """Read one file. Never raises: what cannot be understood says so in `not_read`."""
    if data[:2] == b"#!":
        return _script(data)
    try:
        told = identity(data[:64])
    except NoElf:
        return Contents()
    if code is not None and told.machine != code.elf_machine:
        # The same family in 32 bits has a number of its own; another processor's program is not for this kernel.
        return _narrow(data) if told.bits == 32 and told.little else Contents(FileKind.FOREIGN)
    if told.bits == 32 or not told.little:
        return _narrow(data) if told.bits == 32 else Contents(FileKind.FOREIGN)
    try:
        return _elf(data, code, wanted)
    except (NoElf, ValueError, IndexError, KeyError, OverflowError, struct.error, MemoryError) as error:
        return Contents(FileKind.ELF, not_read=f"it is damaged: {type(error).__name__}")


def _narrow(data: bytes) -> Contents:
    """Return a program of 32 bits, of which no more than its header is read."""
    machine, flags = narrow_numbers(data[:64])
    return Contents(FileKind.ELF32, machine=machine, flags=flags)


def _strings(
    parts: Iterable[memoryview], pattern: re.Pattern[bytes], wanted: frozenset[str] | None = None
) -> tuple[str, ...]:
    """Whole strings, each once, `wanted` ones or all: what stands before one is no character of a text."""
    found: dict[str, None] = {}
    for data in parts:
        for match in pattern.finditer(data):
            if match.start() == 0 or not 0x20 <= data[match.start() - 1] < 0x7F:
                text = match.group().decode("ascii", "replace")
                if wanted is None or text in wanted:
                    found[text] = None
                if len(found) >= _MOST_STRINGS:
                    return tuple(found)
    return tuple(found)


def _elf(data: bytes, code: MachineCode | None, wanted: WantedNames) -> Contents:
    elf = ElfFile(data)
    whole = memoryview(data)
    # Some linkers put constants and code into one segment.
    mixed = not any(not one.executable and not one.writable for one in elf.segments)
    constants = [whole[one.offset : one.offset + one.size + 1] for one in elf.segments if not one.executable or mixed]
    words = _strings(constants, _WORDS, wanted.words)
    names, paths, programs = (_strings(constants, pattern) for pattern in (_NAMES, _PATHS, _PROGRAMS))
    imports = elf.imports
    program, why = None, ""
    if code is not None and elf.code:
        if sum(one.size for one in elf.code) <= MOST_CODE:
            program = Program(elf, code)
        else:
            why = "its code is too large to be read: it counts by imports and strings"
    coded = _Code(program, elf, wanted) if program is not None else None
    if coded is not None and program is not None and (program.cut or coded.cut):
        why = "its code is too large to be read whole"
    return Contents(
        FileKind.ELF,
        interpreter=elf.interpreter,
        needed=elf.needed,
        runpath=elf.runpath,
        soname=elf.soname,
        library=bool(elf.dynamic) and not elf.interpreter,
        imports=imports,
        exports=tuple(sorted(elf.exports)),
        own=coded.own if coded else Called(),
        functions=coded.functions if coded else None,
        called=coded.called if coded else (),
        takers=coded.takers if coded else (),
        given=coded.given if coded else (),
        words=words,
        names=names,
        paths=() if coded and coded.reached is not None else paths,
        programs=() if coded and coded.reached is not None else programs,
        not_read=why,
    )


class _Code:
    """The facts read from the code of one file."""

    def __init__(self, program: Program, elf: ElfFile, wanted: WantedNames) -> None:
        self._program = program
        self._elf = elf
        found, takers, _ = program.numbers
        kinds = {number for calls in found.values() for number in calls}
        static = not elf.imports and not elf.needed and not elf.interpreter
        exported = bool(elf.exports)
        self.cut = False
        small = sum(one.size for one in elf.code) <= _MOST_FOLLOWED
        self._used: dict[int, set[str]] = defaultdict(set)
        self.functions: dict[str, int] | None = None
        self.called: tuple[Called, ...] = ()
        self.reached: set[int] | None = None
        if len(kinds) >= _C_LIBRARY and exported and small:
            self._used = _used_strings(program, elf)
            self._by_function()
        elif static and not exported and small:
            self._used = _used_strings(program, elf)
            self.reached = program.reached_from(program.at(elf.begun_by_itself))
        if self.functions is not None:
            self.reached = program.reached_from(program.at(elf.begun_by_itself))
        self.own = self._called(self.reached) if self.reached is not None else self._called(found.keys())
        if self.functions is not None:
            self.own = replace(self.own, strings=())  # what it reads for itself it does without, too
        else:
            self.own = Called(self.own.numbers, (), self.own.strings)  # what it imports counts anyway
        registers = {register: index for index, register in enumerate(program.code.arguments)}
        by_address = {int(program.functions[index]): register for index, register in takers.items()}
        self.takers = tuple(
            sorted(
                (name, registers[by_address[address]])
                for name, addresses in elf.exports.items()
                for address in addresses
                if by_address.get(address) in registers
            )
        )
        self.given = tuple(self._given(wanted))

    def _called(self, functions: Iterable[int]) -> Called:
        found, _, _ = self._program.numbers
        outer = self._program.edges[1] if self.functions is not None or self.reached is not None else {}
        numbers: dict[int, int] = {}
        names: set[str] = set()
        strings: set[str] = set()
        for index in functions:
            for number, at in found.get(index, {}).items():
                numbers.setdefault(number, at)
            names |= outer.get(index, set())
            strings |= self._used.get(index, set())
        return Called(tuple(sorted(numbers.items())), tuple(sorted(names)), tuple(sorted(strings)))

    def _by_function(self) -> None:
        program, elf = self._program, self._elf
        self.functions = {}
        places: dict[Called, int] = {}
        left = _MOST_STEPS
        known: dict[frozenset[int], int] = {}
        for name, addresses in sorted(elf.exports.items()):
            roots = frozenset(program.at(addresses))
            if not roots:
                continue
            if left < 0:
                self.cut = True
                break
            if roots not in known:
                reached = program.reached_from(roots)
                left -= len(reached)
                called = replace(
                    self._called(reached),
                    strings=tuple(
                        sorted({text for one in program.reached_from(roots, _NEAR) for text in self._used[one]})
                    ),
                )
                known[roots] = places.setdefault(called, len(places))
            self.functions[name] = known[roots]
        self.called = tuple(places)

    def _given(self, wanted: WantedNames) -> Iterable[Given]:
        merged: dict[tuple[str, tuple[tuple[int, int], ...]], int] = {}
        for index, at, name, values in self._program.arguments_of(wanted.functions):
            if self.functions is not None or (self.reached is not None and index not in self.reached):
                continue
            constants = tuple((place, value) for place, value in enumerate(values) if isinstance(value, int))
            merged.setdefault((name, constants), at)
        for (name, constants), at in merged.items():
            yield Given(name, constants, at)


def _used_strings(program: Program, elf: ElfFile) -> dict[int, set[str]]:
    """Return function → paths among the constants that it names by their addresses."""
    at: dict[int, str] = {}
    for one in elf.segments:
        data = elf.data[one.offset : one.offset + one.size]
        for pattern in (_PATHS, _PROGRAMS):
            for match in pattern.finditer(data):
                if len(at) < _MOST_STRINGS:
                    at[one.address + match.start()] = match.group().decode("ascii", "replace")
    found: dict[int, set[str]] = defaultdict(set)
    for index, address in program.naming(at):
        found[index].add(at[address])
    return found


def _script(data: bytes) -> Contents:
    first, _, rest = data[:SCRIPT_BYTES].partition(b"\n")
    words = tuple(word.decode("utf-8", "surrogateescape") for word in first[2:258].split())
    programs = dict.fromkeys(word.decode("ascii") for word in _SHELL_WORDS.findall(rest) if word.isascii())
    paths = dict.fromkeys(path.decode("ascii", "replace") for path in _SCRIPT_PATHS.findall(rest))
    return Contents(
        FileKind.SCRIPT,
        interpreter=words[0] if words else "",
        interpreter_words=words[1:],
        paths=tuple(paths)[:_MOST_STRINGS],
        programs=tuple(programs)[:_SCRIPT_WORDS],
    )
