# SPDX-License-Identifier: Apache-2.0
"""Sentences about an answer that is not the expected one, with the answer's first lines. Answers come from outside: of
each only the beginning is shown, on one line."""

from __future__ import annotations

import posixpath

from vmtailor.base.text import plain, plural

#: Lines and characters of an answer that a sentence shows, and characters of an expected text.
LINES, CHARACTERS, EXPECTED = 3, 160, 100
#: Characters before a difference that are shown where a line is the same for long.
_BEFORE = 20


def quoted(text: str, most: int = CHARACTERS) -> str:
    """Return the first lines of a text in quotes on one line, with `\\n` between them and `…` where it was cut."""
    text = text.strip()
    lines = text[: most + 1].split("\n")
    shown = "\\n".join(plain(line.rstrip().expandtabs(1)) for line in lines[:LINES])
    cut = len(text) > most or len(lines) > LINES or len(shown) > most
    return f"'{shown[:most]}{' …' if cut else ''}'"


def began(what: str, text: str) -> str:
    """Return `the body began: '<html>'`, or that it is empty. `what`: body or output."""
    return f"the {what} began: {quoted(text)}" if text.strip() else f"the {what} is empty"


def lacks(what: str, wanted: str, text: str) -> str:
    """Return a sentence about an answer without the text that it was to contain."""
    return f"expected the {what} to contain {quoted(wanted, EXPECTED)}; {began(what, text)}"


def unlike(what: str, wanted: str, text: str) -> str:
    """Return a sentence about a text that is not the one expected, with the first line that differs."""
    return f"the {what} is not as expected: {_first_difference(wanted, text, 'expected')}"


def differs(what: str, before: str, text: str) -> str:
    """Return a sentence about a text that differs from the baseline's, with the first line that does."""
    return f"the {what} differs from the baseline's: {_first_difference(before, text, 'on the baseline')}"


def _first_difference(wanted: str, text: str, whose: str) -> str:
    if wanted.rstrip("\n") == text.rstrip("\n"):
        return f"it ends with {plural(_ends(text), 'line end')}, {whose} with {_ends(wanted)}"
    lines = (text.split("\n"), wanted.split("\n"))
    least = min(map(len, lines))
    at = next((i for i in range(least) if lines[0][i] != lines[1][i]), least)
    both = [side[at] if at < len(side) else None for side in lines]
    same = len(posixpath.commonprefix([line for line in both if line is not None])) if None not in both else 0
    found, other = ("missing" if line is None else f"'{_cut(line, same)}'" for line in both)
    return f"line {at + 1} is {found}, {whose} {other}"


def _ends(text: str) -> int:
    return len(text) - len(text.rstrip("\n"))


def _cut(line: str, same: int) -> str:
    """Return a line's beginning; where it is the same for long, the part with the first difference."""
    start = same - _BEFORE if same > EXPECTED - _BEFORE else 0
    shown = plain(line[start : start + EXPECTED + 1])
    return f"{'… ' if start else ''}{shown[:EXPECTED]}{' …' if len(shown) > EXPECTED else ''}"
