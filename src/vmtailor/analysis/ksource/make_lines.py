# SPDX-License-Identifier: Apache-2.0
"""The lines of a Makefile, by the rules of GNU make: what is an assignment, a condition, a rule; brackets and words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_OPEN = "({"
_CLOSE = ")}"
_MODIFIERS = ("export", "override", "private")
_OPERATOR = re.compile(r"(:::=|::=|:=|\?=|\+=|!=|=)")
_CONDITIONS = ("ifdef", "ifndef", "ifeq", "ifneq")
_CONDITION = re.compile(rf"({'|'.join(_CONDITIONS)})(?=[\s(\"'])\s*(.*)$", re.S)
_QUOTED = re.compile(r"\s*(?:\"([^\"]*)\"|'([^']*)')\s*(?:\"([^\"]*)\"|'([^']*)')\s*$")
_COMMENT = re.compile(r"(?<!\\)#.*")


@dataclass(frozen=True, slots=True)
class Assignment:
    """`name operator value`; the name is not expanded. `!=` and `define` have the operator `!=`: not known."""

    name: str
    operator: str
    value: str


@dataclass(frozen=True, slots=True)
class Branch:
    """A conditional directive. `keyword`: ifdef, ifeq …, `else` (alone) or `endif`; `is_else`: it stands after an else.

    `left` is the name of ifdef; `left` and `right` are the sides of ifeq; both None where they cannot be read."""

    keyword: str
    is_else: bool = False
    left: str | None = None
    right: str | None = None


@dataclass(frozen=True, slots=True)
class Include:
    """Words that name the files to include, not expanded."""

    text: str


Line = Assignment | Branch | Include


def lines(text: str) -> Iterator[Line]:
    """Yield the statements of a Makefile in order, without rules, recipes and calls that stand for themselves (`$(info
    …)`)."""
    in_rule = False
    defining = 0
    for whole in _joined(text):
        line = whole
        words = line.split(None, 2)
        if not words:
            continue
        if defining:
            defining += (words[0] == "define") - (words[0] == "endef")
            continue
        if line.startswith("\t") and in_rule:
            continue
        while words[0] in _MODIFIERS and len(words) > 1 and words[1] not in ("=", ":=", "+=", "?="):
            line = line.split(None, 1)[1]
            words = line.split(None, 2)
        if words[0] == "define" and len(words) > 1:
            defining = 1
            yield Assignment(words[1], "!=", "")
            continue
        found: Line | None = _branch(line.strip()) or _include(words, line) or assignment(line.strip())
        if found is None:
            in_rule = in_rule or _is_rule(line)
            continue
        in_rule = in_rule and isinstance(found, Branch)
        yield found


def _joined(text: str) -> Iterator[str]:
    """Yield lines with continuations joined and comments left out."""
    for line in re.sub(r"(?<![ \t])[ \t]*\\\n[ \t]*", " ", text).split("\n"):
        yield _COMMENT.sub("", line).rstrip()


def _is_rule(line: str) -> bool:
    depth = 0
    for char in line:
        depth += (char in _OPEN) - (char in _CLOSE)
        if char == ":" and depth <= 0:
            return True
    return False


def _include(words: list[str], line: str) -> Include | None:
    if words[0] not in ("include", "-include", "sinclude") or len(words) < 2:
        return None
    return Include(line.split(None, 1)[1])


def _branch(line: str) -> Branch | None:
    if line.split(None, 1)[0] == "endif":
        return Branch("endif")
    is_else = line.split(None, 1)[0] == "else"
    rest = line[4:].strip() if is_else else line
    match = _CONDITION.match(rest)
    if match is None:
        return Branch("else", True) if is_else else None
    keyword, sides = match.groups()
    if keyword in ("ifdef", "ifndef"):
        return Branch(keyword, is_else, sides.strip())
    left, right = _sides(sides)
    return Branch(keyword, is_else, left, right)


def _sides(text: str) -> tuple[str | None, str | None]:
    """Return both sides of `(a,b)` or `"a" "b"`."""
    if text.startswith("("):
        inside = text[1 : closing(text, 0)]
        parts = arguments(inside, most=2)
        return (parts[0].strip(), parts[1].strip()) if len(parts) == 2 else (None, None)
    match = _QUOTED.match(text)
    if match is None:
        return None, None
    first, second, third, fourth = match.groups()
    return first if first is not None else second, third if third is not None else fourth


def assignment(line: str) -> Assignment | None:
    """Return a line that gives a value to a variable; None for any other line (a rule, with `X = y` for one target,
    too)."""
    depth = 0
    for index, char in enumerate(line):
        depth += (char in _OPEN) - (char in _CLOSE)
        if depth > 0 or char not in ":?+!=":
            continue
        match = _OPERATOR.match(line, index)
        if match is None:
            if char == ":":
                return None
            continue
        name = line[:index].strip()
        if len(pieces(name)) != 1:
            return None
        return Assignment(name, match.group(1), line[match.end() :].strip())
    return None


# ---- brackets and words


def closing(text: str, start: int) -> int:
    """Index of the bracket that closes the one at `start`."""
    depth = 0
    for index in range(start, len(text)):
        depth += (text[index] in _OPEN) - (text[index] in _CLOSE)
        if depth == 0:
            return index
    return len(text) - 1


def pieces(text: str) -> list[str]:
    """Split at blanks outside brackets."""
    found, depth, start = [], 0, 0
    for index, char in enumerate(text + " "):
        depth += (char in _OPEN) - (char in _CLOSE)
        if char.isspace() and depth <= 0:
            if index > start:
                found.append(text[start:index])
            start = index + 1
    if start < len(text):  # brackets that nothing closes
        found.append(text[start:])
    return found


def arguments(text: str, most: int = 0) -> list[str]:
    """Split at commas outside brackets, into `most` parts where that is given."""
    found: list[str] = []
    depth, start = 0, 0
    for index, char in enumerate(text):
        depth += (char in _OPEN) - (char in _CLOSE)
        if char == "," and depth == 0 and (not most or len(found) < most - 1):
            found.append(text[start:index])
            start = index + 1
    return [*found, text[start:]]


_EXPORT = re.compile(r"^[ \t]*export[ \t]+([^\n:?+=#]*)", re.M)


def exported(text: str) -> frozenset[str]:
    """Return names that the lines `export A B` and `export A := …` of a Makefile give to the makes below it."""
    joined = re.sub(r"\\\n", " ", text)
    return frozenset(name for match in _EXPORT.finditer(joined) for name in match.group(1).split())
