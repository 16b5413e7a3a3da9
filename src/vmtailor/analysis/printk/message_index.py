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
from functools import cache
from importlib import resources
from itertools import islice

from vmtailor.analysis.printk.templates import HEAD, KEY_ENDS, letters, matches
from vmtailor.base.notation import module_name, version_key

SECTION = b"\x1e\n"
KIND_MODULE, KIND_BOOL, KIND_HIDDEN = "t", "b", "h"
#: Rows that are tried one by one; of more, the next character of the line chooses.
_FEW = 16
_MOST_LINE = 400
_MOST_STARTS, _MOST_PREFIX = 8, 60
#: A program's line, as the console and journals have it.
PROCESS_LINE = re.compile(r"[\w./@()-]{1,60}\[\d+\]: ")
_PREFIX_ENDS = re.compile(r"[:\])] +")
_WORD = re.compile(r"(?:(?<= )|(?<=\A)|(?<=[:(\[]))\S")
#: A driver's name, and a device's.
_DEVICE = re.compile(r"([\w.-]{2,40}) [\w.,:/@-]{2,80}: ")


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a line: the source file and the options one of which it needs, none where every kernel has it.

    `begins`: the line says no more than that something was set up."""

    path: str
    options: tuple[str, ...]
    begins: bool = False


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A row that a line is of. `score`: its literal letters. `begins_at`: where its template stands in the line."""

    score: int
    place: int
    mask: int
    begins: bool
    floating: bool
    begins_at: int


class MessageIndex:
    """The index. Asking it never raises, and takes time in proportion to the line."""

    def __init__(self, data: bytes) -> None:
        kernels, places, symbols, initcalls, drivers, modules, buses, prefixes, messages = data.split(SECTION)
        self.kernels = tuple(kernels.decode().split())
        self._places = places.decode().split("\n")
        self._symbols = _table(symbols)
        self._initcalls = _table(initcalls)
        self._drivers = _table(drivers)
        self._modules = _table(modules)
        self._buses = _table(buses)
        self._prefixes = _table(prefixes)
        self._rows = messages.split(b"\n")

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
        found = [(one, origin) for one, origin in found if self._is_credible(one, origin, drivers)]
        found = [(one, origin) for one, origin in found if origin.options in drivers] or found
        most = max((one.score for one, _ in found), default=0)
        found = [(one, origin) for one, origin in found if one.score == most]
        found = [(one, origin) for one, origin in found if one.mask & bits] or found
        if len({origin.options for _, origin in found}) != 1:
            return None
        first = found[0][1]
        return Origin(first.path, first.options, all(origin.begins for _, origin in found))

    def _of_driver(self, line: str) -> set[tuple[str, ...]]:
        """Return the options that have a driver or module of the name that a line begins with; none for a bus, whose
        name stands before a device without a driver."""
        word = line.partition(" ")[0].rstrip(":")
        if word in self._buses:
            return set()
        tables = ((self._drivers, word), (self._modules, module_name(word)))
        numbers = [number for table, name in tables for number in table.get(name, "").split()]
        return {self._place(int(number)).options for number in numbers}

    def _is_credible(self, one: _Candidate, origin: Origin, drivers: set[tuple[str, ...]]) -> bool:
        """Return whether what stands before a template's place may stand there: not another driver's name. No driver
        prints what needs a prefix without one."""
        if not one.floating or not origin.path.startswith(("drivers/", "sound/")):
            return True
        has_driver = self._places[one.place].endswith("\td") and "core" not in origin.path
        return bool(one.begins_at) and (not has_driver or not drivers or origin.options in drivers)

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
        for kind, start in (("^", 0), *(("~", start) for start in _starts(line))):
            yield from self._tried(kind.encode(), line, start, start)
        for match in _WORD.finditer(line):
            yield from self._tried(b"*", line, match.start(), 0)

    def _tried(self, kind: bytes, line: str, at: int, start: int) -> Iterator[_Candidate]:
        """Yield the rows of a kind that begin as the line does at `at`."""
        tail = line[at:].encode()
        low, high, length = 0, len(self._rows), HEAD
        while length <= len(tail) + 1:
            head = kind + tail[:length]
            low = bisect_left(self._rows, head, low, high)
            high = bisect_left(self._rows, head + b"\xff", low, high)
            if high - low <= _FEW or length > len(tail):
                break
            # Those whose literal text ends here come first: a mark is below every character of a line.
            ended = bisect_left(self._rows, head + b" ", low, high)
            yield from self._matching(low, ended, line, start)
            low, length = ended, length + 1
        if length <= len(tail) + 1:
            yield from self._matching(low, high, line, start)

    def _matching(self, low: int, high: int, line: str, start: int) -> Iterator[_Candidate]:
        for row in self._rows[low:high]:
            text, _, facts = row.decode().partition("\t")
            if text[0] == "*":
                text = text.partition(KEY_ENDS)[2]
            starts = (start,) if start or text[0] == "^" else (0, *_starts(line))
            for begins_at in starts:
                if matches(text[1:], line, begins_at):
                    place, mask = facts.split()
                    yield _Candidate(
                        score=letters(text[1:]), place=int(place), mask=int(mask.rstrip("i")), begins=mask[-1] == "i",
                        floating=text[0] == "~", begins_at=begins_at,
                    )  # fmt: skip
                    break


def _starts(line: str) -> Iterator[int]:
    """Yield where a message may begin behind a prefix."""
    yield 0
    for match in islice(_PREFIX_ENDS.finditer(line), _MOST_STARTS):
        yield match.end()


def _table(section: bytes) -> dict[str, str]:
    return dict(row.split("\t", 1) for row in section.decode().split("\n") if row)


@cache
def index() -> MessageIndex:
    """Return the index that vmtailor has."""
    packed = resources.files("vmtailor").joinpath("data", "messages", "kernel.xz").read_bytes()
    return MessageIndex(lzma.decompress(packed))
