# SPDX-License-Identifier: Apache-2.0
"""Output that differs from run to run by itself: times, process numbers, random names. Two runs on one kernel show
which parts they are; only the others tell whether another kernel changed something."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

#: Stands for a part that varies.
MASK = "*"
_TOKEN = re.compile(r"[^\W_]+|\s+|.", re.S)
_LETTER = re.compile(r"[^\W\d_]")
#: A part that varies, and one that had no letters in either run. No token is one of these, nor between two.
_ANY, _NUMBER, _BETWEEN = "**", "##", "\ud800"
#: Lines that are shown of what varies, and characters of each.
MOST_SHOWN, WIDTH = 3, 120


def _tokens(line: str) -> list[str]:
    """Return the words, marks and gaps of a line; all gaps are alike, since numbers are padded."""
    return [" " if token.isspace() else token for token in _TOKEN.findall(line)]


def _mask(one: str, again: str) -> str:
    return _ANY if _LETTER.search(one) or _LETTER.search(again) else _NUMBER


def _fixed(one: str, again: str) -> list[str]:
    """Return the parts that two forms of a line share, with a mask for what lies between them."""
    first, second = _tokens(one), _tokens(again)
    if len(first) == len(second):
        return [a if a == b else _mask(a, b) for a, b in zip(first, second, strict=True)]
    least = min(len(first), len(second))
    head = next((i for i in range(least) if first[i] != second[i]), least)
    tail = next((i for i in range(least - head) if first[-1 - i] != second[-1 - i]), least - head)
    spans = ("".join(tokens[head : len(tokens) - tail]) for tokens in (first, second))
    return [*first[:head], _mask(*spans), *first[len(first) - tail :]]


def _joined(tokens: Sequence[str]) -> str:
    return "".join(f"{token}{_BETWEEN}" for token in tokens)


def _holds(line: str, fixed: Sequence[str]) -> bool:
    """Return whether a line has the fixed parts in their places, and no word where both runs had a number."""
    text, at, pending = _BETWEEN + _joined(_tokens(line)), 1, ""
    for is_mask, parts in itertools.groupby(fixed, lambda part: part in (_ANY, _NUMBER)):
        group = list(parts)
        if is_mask:
            pending = _ANY if _ANY in group else _NUMBER
            continue
        begin = text.find(_BETWEEN + _joined(group), at - 1)
        if begin < 0 or not _may_stand(pending, text[at : begin + 1]):
            return False
        at, pending = begin + 1 + len(_joined(group)), ""
    return _may_stand(pending, text[at:])


def _may_stand(mask: str, span: str) -> bool:
    return span == "" or mask == _ANY or (mask == _NUMBER and _LETTER.search(span) is None)


@dataclass(frozen=True)
class Output:
    """The output of one program in two runs on the same kernel."""

    one: str
    again: str

    @cached_property
    def _lines(self) -> tuple[list[str], list[str]]:
        return self.one.split("\n"), self.again.split("\n")

    @cached_property
    def _masks(self) -> dict[int, list[str]]:
        """Number of a line that varies → its parts. Empty where the runs have not the same number of lines."""
        first, second = self._lines
        if len(first) != len(second):
            return {}
        return {i: _fixed(a, b) for i, (a, b) in enumerate(zip(first, second, strict=True)) if a != b}

    def allows(self, other: str) -> bool:
        """Return whether a third run printed the same, but for what varied between the two. Where they printed more or
        fewer lines, it must have every line that both have."""
        if other in (self.one, self.again):
            return True
        if self.one == self.again:
            return False
        (first, second), third = self._lines, other.split("\n")
        if len(first) != len(second):
            return not (Counter(first) & Counter(second)) - Counter(third)
        if len(third) != len(first):
            return False
        return all(
            _holds(line, self._masks[i]) if i in self._masks else line == first[i] for i, line in enumerate(third)
        )

    def varying(self) -> tuple[str, ...]:
        """Return some lines that vary, with MASK for the parts that do; empty where the runs agree."""
        if self.one == self.again:
            return ()
        if not self._masks:
            return ("the number of lines",)
        shown = itertools.islice(self._masks.values(), MOST_SHOWN)
        return tuple("".join(MASK if part in (_ANY, _NUMBER) else part for part in parts)[:WIDTH] for parts in shown)
