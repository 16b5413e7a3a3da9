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
import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from itertools import islice

from vmtailor.analysis.printk.templates import HEAD, KEY_ENDS, TEXT, letters, matches
from vmtailor.base.notation import module_name, version_key

SECTION = b"\x1e\n"
KIND_MODULE, KIND_BOOL, KIND_HIDDEN = "t", "b", "h"
#: Rows that are tried one by one; of more, the next character of the line chooses.
_FEW = 16
_MOST_LINE = 400
_MOST_STARTS, _MOST_WORDS, _MOST_PREFIX = 8, 40, 60
#: A program's line, as the console and journals have it.
PROCESS_LINE = re.compile(r"[\w./@()-]{1,60}\[\d+\]: ")
_PREFIX_ENDS = re.compile(r"[:\])] +")
_WORD = re.compile(r"(?:(?<= )|(?<=\A)|(?<=[:(\[]))\S")
#: A driver's name, and a device's.
_DEVICE = re.compile(r"([\w.-]{2,40}) [\w.,:/@-]{2,80}: ")


#: Subsystems that speak of the devices of every bus.
_BENEATH_ALL = frozenset({"acpi", "base", "clk", "firmware", "gpio", "gpu", "iommu", "of", "pci", "pnp", "regulator"})
Options = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a line: the source file and the options one of which it needs, none where every kernel has it.

    `begins`: the line says no more than that something was set up."""

    path: str
    options: tuple[str, ...]
    begins: bool = False


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A row that a line is of. `score`: its literal letters. `any_start`: its template begins with any text.
    `begins_at`: where its template stands in the line."""

    score: int
    place: int
    mask: int
    begins: bool
    floating: bool
    any_start: bool
    begins_at: int


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
        self._rows = messages.split(b"\n")

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

    def origin(self, line: str, version: str | None = None) -> Origin | None:
        """Return the origin of a kernel's line without its stamp; None where that is not certain.

        `version`: of the kernel that printed it. The nearest kernel of the index is asked first."""
        line = line[:_MOST_LINE].rstrip().replace("\t", " ")
        if PROCESS_LINE.match(line) or len(line) < HEAD:
            return None
        found = self._best(line, self._bits(version))
        return found or self._by_driver(line) or self._by_prefix(line)

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

    def _best(self, line: str, bits: int) -> Origin | None:
        """Return the origin of the template that has most of the line; None where templates of several options do."""
        drivers = self._of_driver(line)
        found = [(one, self._place(one.place, one.begins)) for one in self._candidates(line)]
        found = [(one, origin) for one, origin in found if self._is_credible(one, origin, drivers, line)]
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

    def _is_credible(self, one: _Candidate, origin: Origin, drivers: set[Options], line: str) -> bool:
        """Return whether what stands before a template's place may stand there: not another driver's name, and a
        device's or that of its own subsystem. No driver prints what needs a prefix without one."""
        if not (one.floating or one.any_start) or not origin.path.startswith(("drivers/", "sound/", "fs/")):
            return True
        if one.floating and not one.begins_at:
            return False
        if drivers and self._is_driver(one) and origin.options not in drivers:
            return False
        word = _first_word(line)
        if word in self._buses:
            folders = {self._place(int(number)).path.split("/")[1] for number in self._buses[word].split()}
            return origin.path.split("/")[1] in folders | _BENEATH_ALL
        before = (line[: one.begins_at] if one.floating else line.partition(": ")[0]).lower()
        own = [name for name in origin.path.split("/")[1:-1] if len(name) > 2]
        behind_device = not origin.path.startswith("fs/") and _DEVICE.match(line) is not None
        return origin.options in drivers or behind_device or any(name in before for name in own)

    def _is_driver(self, one: _Candidate) -> bool:
        place = self._places[one.place]
        return place.endswith("\td") and "core" not in place.partition("\t")[0]

    def _by_driver(self, line: str) -> Origin | None:
        """Return the origin of `driver device: …` where one option alone has a driver, or a bus, of that name."""
        match = _DEVICE.match(line)
        if match is None:
            return None
        places = self._buses.get(match[1]) or self._drivers.get(match[1]) or self._modules.get(module_name(match[1]))
        return self._one(places or "")

    def _by_prefix(self, line: str) -> Origin | None:
        """Return the origin of a line whose beginning the files of one option alone have."""
        end = line.find(": ")
        found = ""
        while 0 <= end < _MOST_PREFIX:
            found = self._prefixes.get(line[: end + 2], found)
            end = line.find(": ", end + 1)
        return self._one(found)

    def _candidates(self, line: str) -> Iterator[_Candidate]:
        starts = tuple(dict.fromkeys((0, *_starts(line))))
        for row in self._beginning(b"^", line):
            yield from self._matching(row, line, (0,))
        for start in starts:
            for row in self._beginning(b"~", line[start:]):
                yield from self._matching(row, line, (start,))
        words = (match.start() for match in islice(_WORD.finditer(line), _MOST_WORDS))
        for row in dict.fromkeys(row for at in words for row in self._beginning(b"*", line[at:])):
            yield from self._matching(row, line, starts)

    def _beginning(self, kind: bytes, text: str) -> Iterator[int]:
        """Yield the numbers of the rows of a kind that begin as a text does."""
        tail = text.encode("utf-8", "replace")
        low, high, length = 0, len(self._rows), HEAD
        while length <= len(tail):
            head = kind + tail[:length]
            low = bisect_left(self._rows, head, low, high)
            high = bisect_left(self._rows, head + b"\xff", low, high)
            if high - low <= _FEW:
                break
            # Those whose literal text ends here come first: a mark is below every character of a line.
            ended = bisect_left(self._rows, head + b" ", low, high)
            yield from range(low, ended)
            low, length = ended, length + 1
        else:
            return
        yield from range(low, high)

    def _matching(self, row: int, line: str, starts: tuple[int, ...]) -> Iterator[_Candidate]:
        """Yield the candidate that a row is, if the line is of it at one of `starts`."""
        text, _, facts = self._rows[row].decode().partition("\t")
        if text[0] == "*":
            text = text.partition(KEY_ENDS)[2]
        for begins_at in starts if text[0] == "~" else (0,):
            if matches(text[1:], line, begins_at):
                place, mask = facts.split()
                yield _Candidate(
                    score=letters(text[1:]), place=int(place), mask=int(mask.rstrip("i")), begins=mask[-1] == "i",
                    floating=text[0] == "~", any_start=text[1] == TEXT, begins_at=begins_at,
                )  # fmt: skip
                return


def _first_word(line: str) -> str:
    return line.partition(" ")[0].rstrip(":")


def _starts(line: str) -> Iterator[int]:
    """Yield where a message may begin behind a prefix."""
    for match in islice(_PREFIX_ENDS.finditer(line), _MOST_STARTS):
        yield match.end()


def _table(section: bytes) -> dict[str, str]:
    return dict(row.split("\t", 1) for row in section.decode().split("\n") if row)


@cache
def index() -> MessageIndex:
    """Return the index that vmtailor has."""
    packed = resources.files("vmtailor").joinpath("data", "messages", "kernel.xz").read_bytes()
    return MessageIndex(lzma.decompress(packed))
