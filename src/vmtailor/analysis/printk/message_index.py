# SPDX-License-Identifier: Apache-2.0
"""The index of the kernel's messages: which file and which option printed a line of a log.

data/messages/kernel.xz, made by tools/kernel_messages.py, holds sections of lines:

    kernels    versions, the oldest first; a row's mask has bit 0 for the first
    places     path, tab, options joined by |, empty where every kernel has the file; tab, d where it has a driver
    symbols    name, tab, t (may be a module), b (bool) or h (cannot be chosen), tab, selectors, tab, dependencies
    initcalls, drivers, modules, buses, prefixes      name, tab, places
    messages   sorted rows (templates.py), tab, place, mask and `i` where it only says that something begins"""

from __future__ import annotations

import lzma
import posixpath
import re
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources

from vmtailor.analysis.printk.rows import MatchedRow, MessageRows
from vmtailor.analysis.printk.templates import HEAD, letters, spaced
from vmtailor.base.notation import module_name, version_key
from vmtailor.model.architecture import every

SECTION = b"\x1e\n"
KIND_MODULE, KIND_BOOL, KIND_HIDDEN = "t", "b", "h"
_MOST_LINE = 400
_MOST_PREFIX = 60
#: A program's line, as the console and journals have it.
PROCESS_LINE = re.compile(r"[\w./@()-]{1,60}\[\d+\]: ")
#: A driver's name, and a device's.
_DEVICE = re.compile(r"([\w.-]{2,40}) ([\w.,:/@-]{2,80}): ")
#: Characters of names of devices, which words have not.
_NO_WORD = re.compile(r"[\d.:@-]")
#: A module's name that is no word.
_MODULE = re.compile(r"[a-z0-9]+(?:_[a-z0-9]+)+\Z")
#: Letters that say little behind a prefix that may be anyone's, and much.
_FEW_LETTERS, _MANY_LETTERS = 10, 16
#: Letters that a message needs whose prefix is gone, in subsystems that many share.
_MIN_MOVED_ELSEWHERE = 24
#: Letters that a message needs that its driver's name, or its prefix, names; rows that a prefix has at least, and of
#: which all are looked at.
_MIN_DRIVER, _MIN_PREFIX, _LEAST_OF_PREFIX, _MOST_OF_PREFIX = 6, 3, 2, 400

#: Subsystems that speak of the devices of every bus.
_BENEATH_ALL = frozenset({
    "acpi", "base", "clk", "firmware", "gpio", "gpu", "iommu", "mfd", "of", "pci", "pnp", "regulator",
})  # fmt: skip
#: Buses of which their own core speaks alone: behind the others' names drivers speak, too.
_OWN_VOICE = frozenset({"pci", "pci_bus", "scsi", "acpi", "pnp"})
#: Subsystems whose core and helpers speak behind the names of their drivers, often in few words.
_SPOKEN_FOR = ("drivers/hid/", "drivers/usb/", "drivers/ata/", "sound/")
#: Folders below arch/ by the name of the architecture in a log, where the two differ.
_ARCH_FOLDERS = {
    name: row.kernel.source
    for row in every()
    for name in (row.name, *row.log.names, *row.log.names.values(), *row.log.titles.values())
}
Options = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a line: the source file and the options one of which it needs, none where every kernel has it.

    `begins`: the line says no more than that something was set up."""

    path: str
    options: tuple[str, ...]
    begins: bool = False


class MessageIndex:
    """The index. Asking it never raises, and takes time in proportion to the line."""

    def __init__(self, data: bytes) -> None:
        kernels, places, symbols, initcalls, drivers, modules, buses, prefixes, messages = data.split(SECTION)
        self.kernels = tuple(kernels.decode().split())
        self._places = places.decode().split("\n")
        self._of_symbols, self._of_initcalls = symbols, initcalls
        self._drivers = _table(drivers)
        self._modules = _table(modules)
        self._buses = _table(buses)
        self._prefixes = _table(prefixes)
        self._rows = MessageRows(messages)

    @cached_property
    def _symbols(self) -> dict[str, str]:
        return _table(self._of_symbols)

    @cached_property
    def _initcalls(self) -> dict[str, str]:
        return _table(self._of_initcalls)

    # ---- options

    def kind(self, option: str) -> str:
        """Return whether an option is one of KIND_MODULE, KIND_BOOL, KIND_HIDDEN."""
        return self._symbols.get(option, KIND_HIDDEN).partition("\t")[0]

    def selected_by(self, option: str) -> tuple[str, ...]:
        """Return the options that select this one."""
        return self._fact(option, 1)

    def depends_on(self, option: str) -> tuple[str, ...]:
        """Return the options in this one's dependencies."""
        return self._fact(option, 2)

    def _fact(self, option: str, number: int) -> tuple[str, ...]:
        facts = self._symbols.get(option, "").split("\t")
        return tuple(facts[number].split()) if number < len(facts) else ()

    # ---- lines

    def origin(self, line: str, version: str | None = None, arch: str | None = None) -> Origin | None:
        """Return the origin of a kernel's line without its stamp; None where that is not certain.

        `version`, `arch`: of the kernel that printed it. The nearest kernel of the index is asked first."""
        line = spaced(line[:_MOST_LINE].rstrip())
        if PROCESS_LINE.match(line) or len(line) < HEAD:
            return None
        drivers = self._of_driver(line)
        for candidates in (self._rows.exact, self._rows.moved, self._rows.near):
            placed = ((one, self._place(one.place, one.begins)) for one in candidates(line))
            found = [
                (one, origin) for one, origin in placed
                if _is_of(arch, origin.path) and self._is_credible(one, origin, drivers, line)
            ]  # fmt: skip
            if found:
                best = self._best(found, drivers, self._bits(version))
                return best or self._by_driver(line) or self._by_prefix(line)
        return self._by_driver(line) or self._by_prefix(line)

    def of_initcall(self, name: str) -> Origin | None:
        """Return the origin of an initcall by the name of its function; None where several have it."""
        return self._one(self._initcalls.get(name, ""))

    def _bits(self, version: str | None) -> int:
        """Return the mask of the kernel that is nearest to a version."""
        wanted = version_key(version) if version else ()
        newer = [n for n, one in enumerate(self.kernels) if version_key(one)[:2] <= wanted[:2]]
        return 1 << (max(newer, default=0) if wanted else len(self.kernels) - 1)

    def _place(self, number: int, begins: bool = False) -> Origin:
        path, options, *_ = self._places[number].split("\t")
        return Origin(path, tuple(options.split("|")) if options else (), begins)

    def _one(self, numbers: str) -> Origin | None:
        """Return the origin that all places agree about; None without any."""
        found = [self._place(int(number)) for number in numbers.split()]
        return found[0] if found and all(one.options == found[0].options for one in found) else None

    def _best(self, found: list[tuple[MatchedRow, Origin]], drivers: set[Options], bits: int) -> Origin | None:
        """Return the origin of the template that has most of the line; None where templates of several options do."""
        found = [(one, origin) for one, origin in found if origin.options in drivers] or found
        most = max((one.score for one, _ in found), default=0)
        found = [(one, origin) for one, origin in found if one.score == most]
        found = [(one, origin) for one, origin in found if one.mask & bits] or found
        if len({origin.options for _, origin in found}) > 1:  # a driver's own would stand behind its name
            found = [(one, origin) for one, origin in found if not (one.floating and self._is_driver(one))]
        if len({origin.options for _, origin in found}) != 1:
            return None
        first = found[0][1]
        return Origin(first.path, first.options, all(origin.begins for _, origin in found))

    def _of_driver(self, line: str) -> set[Options]:
        """Return the options that have a driver or module of the name that a line begins with; none for a bus, whose
        name stands before a device without a driver."""
        word = _first_word(line)
        if word in self._buses:
            return set()
        tables = ((self._drivers, word), (self._modules, module_name(word)))
        numbers = [number for table, name in tables for number in table.get(name, "").split()]
        return {self._place(int(number)).options for number in numbers}

    def _is_credible(self, one: MatchedRow, origin: Origin, drivers: set[Options], line: str) -> bool:
        """Return whether what stands before a template's place may stand there: not another driver's name, and a
        device's or that of its own subsystem. No driver prints what needs a prefix without one."""
        if not (one.floating or one.any_start):
            return True
        before = (line[: one.begins_at] if one.floating else line.partition(": ")[0]).lower()
        is_own = any(name in before for name in _own_names(origin.path))
        if one.moved:
            core = not origin.path.startswith(("drivers/", "sound/", "fs/", "net/"))
            alone = core or (one.score >= _MIN_MOVED_ELSEWHERE and not self._is_driver(one))
            return is_own if one.begins_at else alone
        if one.near and one.floating:
            return origin.options in drivers or (is_own and not drivers)
        if one.floating and one.score < _FEW_LETTERS:
            of_core = _of_all(origin.path) and not self._is_driver(one)
            return origin.options in drivers or is_own or (of_core and self._device(line) is not None)
        if not origin.path.startswith(("drivers/", "sound/", "fs/")):
            return True
        return self._is_drivers_own(one, origin, drivers, line) and (
            is_own or self._may_speak(one, origin, drivers, line)
        )

    def _is_drivers_own(self, one: MatchedRow, origin: Origin, drivers: set[Options], line: str) -> bool:
        """Return whether a message of a subsystem of drivers stands behind a prefix, and no other driver's."""
        if one.floating and not one.begins_at:
            return False
        if drivers and self._is_driver(one) and origin.options not in drivers:
            return False
        word = _first_word(line)
        if word not in self._buses:
            return True
        folders = {self._place(int(number)).path.split("/")[1] for number in self._buses[word].split()}
        return _of_all(origin.path) or origin.path.split("/")[1] in folders

    def _may_speak(self, one: MatchedRow, origin: Origin, drivers: set[Options], line: str) -> bool:
        """Return whether a message may stand behind the prefix of a line, which has no name of its subsystem."""
        if origin.options in drivers or _first_word(line) in self._buses:
            return True
        if one.any_start and not one.floating and one.score < _MANY_LETTERS:
            return False
        if one.any_start and not one.floating and _of_all(origin.path):
            return True
        return not origin.path.startswith("fs/") and self._device(line) is not None

    def _is_driver(self, one: MatchedRow) -> bool:
        place = self._places[one.place]
        return place.endswith("\td") and "core" not in place.partition("\t")[0]

    def _device(self, line: str) -> str | None:
        """Return the name of a driver or a bus that stands with a device at the beginning of a line."""
        match = _DEVICE.match(line)
        known = match is not None and (match[1] in self._drivers or match[1] in self._buses)
        return match[1] if match is not None and (known or _NO_WORD.search(match[2])) else None

    def _by_driver(self, line: str) -> Origin | None:
        """Return the origin of `driver device: …` where one option alone has a driver, or a bus, of that name, and
        nobody else is known to speak behind it."""
        name = self._device(line)
        if name is None or letters(line.partition(": ")[2]) < _MIN_DRIVER:
            return None
        if name in self._buses:
            return self._one(self._buses[name]) if name in _OWN_VOICE else None
        origin = self._one(self._drivers.get(name) or self._modules.get(module_name(name)) or "")
        return origin if origin is not None and not origin.path.startswith(_SPOKEN_FOR) else None

    def _by_prefix(self, line: str) -> Origin | None:
        """Return the origin of a line whose beginning one option alone has: its files, its messages or its module."""
        end = line.find(": ")
        found = self._one(self._modules.get(line[:end], "")) if end > 0 and _MODULE.match(line[:end]) else None
        while 0 <= end < _MOST_PREFIX:
            prefix = line[: end + 2]
            if prefix in self._prefixes:
                found = self._one(self._prefixes[prefix])
            elif letters(prefix) >= _MIN_PREFIX:
                found = self._of_messages(prefix, found)
            end = line.find(": ", end + 1)
        return found

    def _of_messages(self, prefix: str, known: Origin | None) -> Origin | None:
        """Return the origin that all messages agree about that begin with a prefix, `known` where none does."""
        places = self._rows.places_of_prefix(prefix, _LEAST_OF_PREFIX, _MOST_OF_PREFIX)
        if places is None:
            return known
        found = self._one(" ".join(str(place) for place in places))
        words = prefix.lower()
        named = found is not None and any(
            name in words for name in (*_own_names(found.path), *_parts(found.options)) if len(name) > 2
        )
        return found if named else known


def _is_of(arch: str | None, path: str) -> bool:
    """Return whether a kernel for an architecture may have a file."""
    return arch is None or not path.startswith("arch/") or path.split("/")[1] == _ARCH_FOLDERS.get(arch, arch)


def _of_all(path: str) -> bool:
    """Return whether a file is of a subsystem that speaks of the devices of every bus."""
    return path.split("/")[1] in _BENEATH_ALL


def _own_names(path: str) -> list[str]:
    """Return the names of a file and of the folders of its subsystem by which its messages may begin."""
    names = (*path.split("/")[1:-1], posixpath.splitext(posixpath.basename(path))[0])
    return [name for name in names if len(name) > 2]


def _parts(options: Options) -> list[str]:
    return [part for option in options for part in option.lower().split("_")]


def _first_word(line: str) -> str:
    return line.partition(" ")[0].rstrip(":")


def _table(section: bytes) -> dict[str, str]:
    return dict(row.split("\t", 1) for row in section.decode().split("\n") if row)


@cache
def index() -> MessageIndex:
    """Return the index that vmtailor has."""
    packed = resources.files("vmtailor").joinpath("data", "messages", "kernel.xz").read_bytes()
    return MessageIndex(lzma.decompress(packed))
