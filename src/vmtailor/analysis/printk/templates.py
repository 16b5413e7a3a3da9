# SPDX-License-Identifier: Apache-2.0
"""Templates of messages as rows of the index, and whether a line of a log is one: a scanner without backtracking.

A template is literal text with marks. A row begins with what is looked up in the
sorted index: `^` or `~` (an unknown prefix may stand before it) and the template; or, where a template begins with a
value, `*`, its longest run of whole words, and then the same. ENDS behind a template says that the line ends there."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from functools import lru_cache

#: Marks in a template, below all printable characters: a decimal and a hexadecimal number, any text, one character.
DECIMAL, HEX, TEXT, CHARACTER = "\x01", "\x02", "\x03", "\x04"
#: Characters that a number may have in front, and those it is made of.
_NUMBERS = {DECIMAL: (" -+", "0123456789"), HEX: (" ", "0123456789abcdefABCDEFx")}
#: Behind the words of a `*` row, and at the end of a template that a line ends with.
KEY_ENDS, ENDS = "\x05", "\x06"
#: Literal characters that are looked up at least.
HEAD = 5
#: Letters that a template must have to name anything.
MIN_LETTERS = 6
_MARKS = re.compile("([\x01-\x04])")
_GAP = re.compile(r"[^\w]")
_BLANKS = re.compile(r"[ \t]+")
_LETTER = re.compile(r"[^\W\d_]")
_WORDS = re.compile(r"(?:(?<=[ ])|(?<=\A))[^\s\x01-\x06][^\x01-\x06]*")
#: A template that is longer is cut, as lines of a log are.
MOST_CHARACTERS = 240


def spaced(text: str) -> str:
    """Return a text with one blank for several: the console and journals put blanks for tabs."""
    return _BLANKS.sub(" ", text)


def letters(template: str) -> int:
    """Return how many letters of a template are literal: how much of it must be there."""
    return len(_LETTER.findall(template))


def row_of(template: str, floating: bool, whole: bool, least: int | None = None) -> bytes | None:
    """Return the row of a template; None for one that has too little to be looked up by, or to name anything."""
    template = spaced(template.lstrip() if floating else template)
    if letters(template) < (least or MIN_LETTERS):
        return None
    if len(template) > MOST_CHARACTERS:
        template, whole = template[:MOST_CHARACTERS], False
    if template.endswith(TEXT):
        whole = False
    kind = "~" if floating else "^"
    rest = template + (ENDS if whole else "")
    head = _MARKS.split(template, maxsplit=1)[0]
    if len(head) >= HEAD:
        return f"{kind}{rest}".encode()
    key = max((run.rstrip() for run in _WORDS.findall(template)), key=len, default="")[:40].rstrip()
    return f"*{key}{KEY_ENDS}{kind}{rest}".encode() if len(key) >= HEAD else None


def hand_written(template: str, floating: bool) -> bytes:
    """Return the row of a template that was written by hand, which may have fewer letters. Raises ValueError where it
    cannot be looked up."""
    row = row_of(template, floating, False, least=1)
    if row is None:
        raise ValueError(f"a line cannot be looked up by so little: {template!r}")
    return row


def _behind(characters: str, line: str, at: int) -> int:
    """Return the first place from `at` on that has none of the characters."""
    while at < len(line) and line[at] in characters:
        at += 1
    return at


@dataclass(frozen=True, slots=True)
class _Block:
    """Literals and numbers between two marks of any text: they follow each other without a gap."""

    parts: tuple[str, ...]

    def match(self, line: str, at: int) -> int:
        """Return where the block ends when it begins at `at`; -1 when it is not there."""
        for part in self.parts:
            if part in _NUMBERS:
                before, made_of = _NUMBERS[part]
                digits = _behind(before, line, at)
                at = _behind(made_of, line, digits)
                if at == digits:
                    return -1
            elif part == CHARACTER:
                at += 1
            elif line.startswith(part, at):
                at += len(part)
            else:
                return -1
        return at if at <= len(line) else -1

    def find(self, line: str, at: int, ends: bool) -> int:
        """Return where the first place of the block from `at` on ends, or, with `ends`, one that ends the line; -1."""
        first = self.parts[0]
        literal = first not in _NUMBERS and first != CHARACTER
        while at <= len(line):
            if literal:
                at = line.find(first, at)
                if at < 0:
                    return -1
            end = self.match(line, at)
            if end >= 0 and (not ends or end == len(line)):
                return end
            at += 1
        return -1

    def shared(self, line: str, at: int) -> int:
        """Return how many letters of whole words the block and the line have in common from `at` on."""
        found = 0
        for part in self.parts:
            end = _Block((part,)).match(line, at)
            if end < 0:
                if part not in _NUMBERS and part != CHARACTER:
                    found += letters(_whole_words(posixpath.commonprefix((part, line[at : at + len(part)]))))
                break
            found += letters(part)
            at = end
        return found


def _whole_words(text: str) -> str:
    return text[: max((match.end() for match in _GAP.finditer(text)), default=0)]


@lru_cache(maxsize=4096)
def _blocks(template: str) -> tuple[tuple[_Block | None, ...], bool]:
    whole = template.endswith(ENDS)
    blocks: list[_Block | None] = []
    for run in template.removesuffix(ENDS).split(TEXT):
        parts = tuple(part for part in _MARKS.split(run) if part)
        blocks.append(_Block(parts) if parts else None)
    return tuple(blocks), whole


def matches(template: str, line: str, start: int = 0) -> bool:
    """Return whether the line, from `start` on, is one of the template. Time: the product of both lengths at most."""
    blocks, whole = _blocks(template)
    at = start
    for number, block in enumerate(blocks):
        last = number == len(blocks) - 1
        if block is None:
            if last and number:
                return True  # it ends with any text
            continue
        if number == 0:
            at = block.match(line, at)
            if last and whole and at != len(line):
                return False
        else:
            at = block.find(line, at, last and whole)
        if at < 0:
            return False
    return True


def shared(template: str, line: str, start: int = 0) -> int:
    """Return how many literal letters of a template the line has, from `start` on, before the first difference."""
    blocks, _ = _blocks(template)
    at, found = start, 0
    for number, block in enumerate(blocks):
        if block is None:
            continue
        end = block.match(line, at) if number == 0 else block.find(line, at, False)
        if end < 0:
            begin = line.find(block.parts[0], at) if number else at
            return found + (block.shared(line, begin) if begin >= 0 else 0)
        found += sum(letters(part) for part in block.parts)
        at = end
    return found
