# SPDX-License-Identifier: Apache-2.0
"""The rows of messages that a line may be of: as they are, without their prefix, or their beginning alone."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

from vmtailor.analysis.printk.templates import HEAD, KEY_ENDS, TEXT, letters, matches, shared

#: MessageRows that are tried one by one; of more, the next character of the line chooses.
_FEW = 16
_MOST_STARTS, _MOST_WORDS, _MOST_PREFIX = 8, 40, 60
_PREFIX_ENDS = re.compile(r"[:\])] +")
_WORD = re.compile(r"(?:(?<= )|(?<=\A)|(?<=[:(\[]))\S")
#: Letters that a message needs whose prefix has changed, and one whose end has; the part of its letters that is left.
_MIN_MOVED, _MIN_NEAR = 12, 18
_NEAR = 0.6


@dataclass(frozen=True, slots=True)
class MatchedRow:
    """A row that a line is of. `score`: its literal letters that the line has. `any_start`: its template begins with
    any text. `begins_at`: where its template stands in the line. `moved`: without the template's own prefix.
    `near`: only its beginning."""

    score: int
    place: int
    mask: int
    begins: bool
    floating: bool
    any_start: bool
    begins_at: int
    moved: bool = False
    near: bool = False


class MessageRows:
    """The rows. Asking them takes time in proportion to the line."""

    def __init__(self, messages: bytes) -> None:
        self._rows = messages.split(b"\n")

    def places_of_prefix(self, prefix: str, least: int, most: int) -> list[int] | None:
        """Return the places of all messages that begin with a prefix; None where they are fewer than `least`, none
        where they are more than `most`."""
        head = b"^" + prefix.encode("utf-8", "replace")
        low = bisect_left(self._rows, head)
        high = bisect_left(self._rows, head + b"\xff", low)
        if high - low < least:
            return None
        return [int(row.partition(b"\t")[2].split()[0]) for row in self._rows[low:high]] if high - low <= most else []

    @cached_property
    def _bare(self) -> tuple[list[bytes], list[tuple[int, int]]]:
        """The messages without their prefixes: sorted beginnings, and for each the row and where it begins there."""
        found: list[tuple[bytes, int, int]] = []
        for number in range(bisect_left(self._rows, b"^"), bisect_left(self._rows, b"_")):
            row = self._rows[number]
            end = row.find(b": ", 0, _MOST_PREFIX)
            while end >= 0:
                found.append((row[end + 2 : end + 2 + _MOST_PREFIX], number, end + 2))
                end = row.find(b": ", end + 1, _MOST_PREFIX)
        found.sort()
        return [beginning for beginning, _, _ in found], [(row, at) for _, row, at in found]

    def exact(self, line: str) -> Iterator[MatchedRow]:
        """Yield the rows that a line is of."""
        for row, text, begins_at in self._looked_up(line):
            if matches(text[1:], line, begins_at):
                yield self._candidate(row, text, letters(text[1:]), begins_at)

    def near(self, line: str) -> Iterator[MatchedRow]:
        """Yield the rows whose beginning a line has: the rest of a message often differs between kernels."""
        for row, text, begins_at in self._looked_up(line):
            score = shared(text[1:], line, begins_at)
            if score >= max(_MIN_NEAR, _NEAR * letters(text[1:])):
                yield replace(self._candidate(row, text, score, begins_at), near=True)

    def moved(self, line: str) -> Iterator[MatchedRow]:
        """Yield the rows that a line is of but for the prefix of either: many prefixes came, went or changed."""
        beginnings, places = self._bare
        for start in dict.fromkeys((0, *_starts(line))):
            whole = ((row, 1) for row in _beginning(self._rows, b"^", line[start:]) if start)
            for row, at in (*(places[n] for n in _beginning(beginnings, b"", line[start:])), *whole):
                text = self._rows[row][at:].partition(b"\t")[0].decode()
                score = letters(text)
                if score >= _MIN_MOVED and matches(text, line, start):
                    yield replace(self._candidate(row, "~" + text, score, start), moved=True)

    def _looked_up(self, line: str) -> Iterator[tuple[int, str, int]]:
        """Yield the rows that a line may be of: number, kind and template, and where it would begin."""
        starts = tuple(dict.fromkeys((0, *_starts(line))))
        for row in _beginning(self._rows, b"^", line):
            yield row, self._text(row), 0
        for start in starts:
            for row in _beginning(self._rows, b"~", line[start:]):
                yield row, self._text(row), start
        words = (match.start() for match in islice(_WORD.finditer(line), _MOST_WORDS))
        for row in dict.fromkeys(row for at in words for row in _beginning(self._rows, b"*", line[at:])):
            text = self._text(row).partition(KEY_ENDS)[2]
            for start in starts if text[0] == "~" else (0,):
                yield row, text, start

    def _text(self, row: int) -> str:
        return self._rows[row].partition(b"\t")[0].decode()

    def _candidate(self, row: int, text: str, score: int, begins_at: int) -> MatchedRow:
        place, mask = self._rows[row].partition(b"\t")[2].decode().split()
        return MatchedRow(
            score=score, place=int(place), mask=int(mask.rstrip("i")), begins=mask[-1] == "i",
            floating=text[0] == "~", any_start=text[1] == TEXT, begins_at=begins_at,
        )  # fmt: skip


def _beginning(rows: Sequence[bytes], kind: bytes, text: str) -> Iterator[int]:
    """Yield the numbers of the sorted rows of a kind that begin as a text does."""
    tail = text.encode("utf-8", "replace")
    low, high, length = 0, len(rows), HEAD
    while length <= len(tail):
        head = kind + tail[:length]
        low = bisect_left(rows, head, low, high)
        high = bisect_left(rows, head + b"\xff", low, high)
        if high - low <= _FEW:
            break
        # Those whose literal text ends here come first: a mark is below every character of a line.
        ended = bisect_left(rows, head + b" ", low, high)
        yield from range(low, ended)
        low, length = ended, length + 1
    else:
        return
    yield from range(low, high)


def _starts(line: str) -> Iterator[int]:
    """Yield where a message may begin behind a prefix."""
    for match in islice(_PREFIX_ENDS.finditer(line), _MOST_STARTS):
        yield match.end()
