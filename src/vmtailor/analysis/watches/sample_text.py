# SPDX-License-Identifier: Apache-2.0
"""Read the sampler's text (native/sampler/sample.h) as it comes. It is a guest's, which nobody trusts: lines, names and
numbers are bounded, and what makes no sense is counted and passed over."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from vmtailor.base.text import is_number
from vmtailor.model.machine_watch import WatchedContainer, WatchedKind, WatchFigure, figures

#: Bytes of a line, lines of a sample, containers that are told apart.
MOST_LINE, MOST_LINES, MOST_CONTAINERS = 512, 1024, 512
_MOST_VALUE = 2**63
_NAME = re.compile(r"[A-Za-z0-9_.:@?-]{1,64}")
_PROCESSOR = re.compile(r"cpu[0-9]{1,4}")
#: Notes of the sampler, as sentences.
NOTES = {
    "control-groups-1": "the machine has control groups of version 1, so its containers are not told apart",
}

#: Names a value of a sample: the kind of thing, its name, the figure.
Key = tuple[WatchedKind, str, str]


@dataclass(frozen=True)
class Sample:
    """One sample. `values`: of each figure that was told."""

    monotonic_ns: int
    real_ns: int
    values: dict[Key, int]


@dataclass
class _Open:
    """A sample that has begun."""

    monotonic_ns: int
    real_ns: int
    values: dict[Key, int] = field(default_factory=dict)
    lines: int = 0


class SampleReader:
    """Takes the sampler's bytes, and gives whole samples. `damaged`: lines that made no sense; `containers`: those that
    were named, by identifier; `notes`: what the sampler could not tell."""

    def __init__(self) -> None:
        self.damaged = 0
        self.containers: dict[str, WatchedContainer] = {}
        self.notes: list[str] = []
        self._held = b""
        self._skips = False
        self._open: _Open | None = None
        self._last_ns = -1

    def feed(self, data: bytes) -> list[Sample]:
        """Return the samples that are whole now."""
        found = []
        *lines, self._held = (self._held + data).split(b"\n")
        for line in lines:
            if self._skips:  # the end of one that was too long
                self._skips = False
                continue
            sample = self._line(line)
            if sample is not None:
                found.append(sample)
        if len(self._held) > MOST_LINE:
            self._skips, self._held = True, b""
            self.damaged += 1
        return found

    def _line(self, line: bytes) -> Sample | None:
        if len(line) > MOST_LINE:
            self.damaged += 1
            return None
        word, *rest = line.decode("ascii", "replace").split(" ")
        if word == "sample":
            self._begin(rest)
        elif self._open is None:
            self.damaged += 1
        elif word == "end":
            return self._end()
        elif self._open.lines >= MOST_LINES:
            self.damaged += 1
        else:
            self._open.lines += 1
            self._take(word, rest)
        return None

    def _begin(self, rest: list[str]) -> None:
        times = [_value(word) for word in rest]
        whole = len(times) == 2 and times[0] is not None and times[1] is not None
        self.damaged += not whole
        self._open = _Open(times[0] or 0, times[1] or 0) if whole else None

    def _end(self) -> Sample | None:
        begun, self._open = self._open, None
        assert begun is not None
        if begun.monotonic_ns <= self._last_ns:  # a clock that does not go on
            self.damaged += 1
            return None
        self._last_ns = begun.monotonic_ns
        return Sample(begun.monotonic_ns, begun.real_ns, begun.values)

    def _take(self, word: str, rest: list[str]) -> None:
        if word == "named":
            self._named(rest)
        elif word == "cut":
            self._note("the machine has more than a sample has room for")
        elif word == "note":
            self._note(NOTES.get(rest[0] if rest else "", ""))
        elif _PROCESSOR.fullmatch(word):
            self._values(figures()["cpu#"], word.removeprefix("cpu"), rest)
        elif word in ("disk", "net", "container"):
            name = rest[0] if rest else ""
            if _NAME.fullmatch(name):
                self._values(figures()[word], name, rest[1:])
            else:
                self.damaged += 1
        elif word in ("cpu", "kernel", "load", "memory"):
            self._values(figures()[word], "", rest)
        else:
            self.damaged += 1

    def _values(self, rows: tuple[WatchFigure, ...], name: str, rest: list[str]) -> None:
        assert self._open is not None
        if len(rest) != len(rows) or any(word != "-" and _value(word) is None for word in rest):
            self.damaged += 1
            return
        for row, word in zip(rows, rest, strict=True):
            value = _value(word)
            if value is not None:
                self._open.values[row.of, name, row.name] = value

    def _named(self, rest: list[str]) -> None:
        if len(rest) != 3 or not all(map(_NAME.fullmatch, rest)):
            self.damaged += 1
        elif rest[0] in self.containers or len(self.containers) < MOST_CONTAINERS:
            self.containers[rest[0]] = WatchedContainer(*rest)

    def _note(self, text: str) -> None:
        if text and text not in self.notes:
            self.notes.append(text)


def _value(word: str) -> int | None:
    if not is_number(word) or len(word) > 20:
        return None
    value = int(word)
    return value if value < _MOST_VALUE else None
