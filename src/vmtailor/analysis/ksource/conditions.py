# SPDX-License-Identifier: Apache-2.0
"""The conditions under which a line of a C file is compiled: the whole stack of `#if`s around it, `#else` included."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field

from vmtailor.analysis.ksource.expr import TRUE, UNKNOWN, Expr, conjunction, needed, negation
from vmtailor.analysis.ksource.expr_text import from_preprocessor

_DIRECTIVE = re.compile(r"[ \t]*#[ \t]*(if|ifdef|ifndef|elif|elifdef|elifndef|else|endif)\b[ \t]*(.*)", re.S)
# Comments, strings and characters in one pattern, so that a comment sign in a string is none.
_COMMENT_OR_TEXT = re.compile(
    r'/\*.*?(?:\*/|\Z)|//[^\n]*|(?<!\\)"(?:\\.|[^"\\\n])*+"|(?<!\\)\'(?:\\.|[^\'\\\n])*+\'', re.S
)
_IF = re.compile(r"\bif[ \t]*\(")
_ENABLED = re.compile(r"\bIS_(?:ENABLED|BUILTIN|REACHABLE)[ \t]*\(")
_BRACE = re.compile(r"[{}]")
_MAX_LENGTH = 10_000


def _opened(line: str) -> str:
    """Return `IS_ENABLED(CONFIG_A))` of a line `if (IS_ENABLED(CONFIG_A)) {`; empty for any other."""
    head, brace, rest = line.rpartition("{")
    begun = _IF.search(head) if brace and not rest.strip(" \t") else None
    inner = head[begun.end() :].rstrip(" \t") if begun else ""
    return inner if inner.endswith(")") and _ENABLED.search(inner) else ""


def without_comments(text: str) -> str:
    """Return the text with comments blanked; line feeds stay, so that line numbers do."""

    def blank(match: re.Match[str]) -> str:
        found = match.group()
        return " " + "\n" * found.count("\n") if found[0] == "/" else found

    return _COMMENT_OR_TEXT.sub(blank, text)


@dataclass
class _Level:
    """One open `#if`: the condition of its present branch, and the negation of all earlier ones."""

    branch: Expr
    not_before: Expr


@dataclass
class LineConditions:
    """Conditions by line of one file."""

    starts: list[int] = field(default_factory=lambda: [1])
    conditions: list[Expr] = field(default_factory=lambda: [TRUE])

    def at(self, line: int) -> Expr:
        """Return the condition under which line `line` (from 1) is compiled."""
        return self.conditions[max(0, bisect_right(self.starts, line) - 1)]

    def _from(self, line: int, condition: Expr) -> None:
        if self.conditions[-1] != condition:
            self.starts.append(line)
            self.conditions.append(condition)


def line_conditions(text: str, tristates: frozenset[str] | None = None) -> LineConditions:
    """Read the conditions of a whole file. Include guards and unbalanced directives do no harm.

    `tristates`: the symbols that may be m; `#ifdef` of any other is true where it is set.
    """
    found = LineConditions()
    if "#" not in text:
        return found
    levels: list[_Level] = []
    lines = without_comments(text).split("\n")
    number = 0
    while number < len(lines):
        first = number
        line = lines[number]
        number += 1
        if "#" not in line or (match := _DIRECTIVE.match(line)) is None:
            continue
        while line.endswith("\\") and number < len(lines) and len(line) < _MAX_LENGTH:
            line = line[:-1] + " " + lines[number]
            number += 1
            match = _DIRECTIVE.match(line) or match
        _step(levels, match.group(1), match.group(2), first + 1, tristates)
        found._from(number + 1, needed(conjunction(*(level.branch for level in levels))))
    return found


def _step(levels: list[_Level], keyword: str, rest: str, line: int, tristates: frozenset[str] | None) -> None:
    if keyword in ("if", "ifdef", "ifndef"):
        condition = _test(keyword, rest, tristates)
        levels.append(_Level(condition, negation(condition)))
    elif not levels:
        return
    elif keyword == "endif":
        levels.pop()
    else:
        top = levels[-1]
        condition = TRUE if keyword == "else" else _test(keyword.removeprefix("el"), rest, tristates)
        top.branch = conjunction(top.not_before, condition)
        top.not_before = conjunction(top.not_before, negation(condition))


def _test(keyword: str, rest: str, tristates: frozenset[str] | None) -> Expr:
    if keyword == "if":
        return from_preprocessor(rest[:_MAX_LENGTH].strip(), tristates)
    name = rest.strip().split(None, 1)[0] if rest.strip() else ""
    condition = from_preprocessor(name, tristates) if name.startswith("CONFIG_") else UNKNOWN
    return negation(condition) if keyword == "ifndef" else condition


def enabled_blocks(text: str, tristates: frozenset[str] | None = None) -> list[tuple[int, int, Expr]]:
    """Return blocks `if (IS_ENABLED(CONFIG_X) …) {` as (first line, last line, condition), by counting braces. One ends
    where its `} else {` begins."""
    blocks: list[tuple[int, int, Expr]] = []
    if "IS_ENABLED" not in text and "IS_BUILTIN" not in text and "IS_REACHABLE" not in text:
        return blocks
    open_blocks: list[tuple[int, int, Expr]] = []  # depth outside, line, condition
    depth = 0
    for number, line in enumerate(without_comments(text).split("\n"), 1):
        for brace in _BRACE.findall(line):
            depth += 1 if brace == "{" else -1
            while open_blocks and depth <= open_blocks[-1][0]:
                _, first, condition = open_blocks.pop()
                blocks.append((first, number - 1, condition))
        if "IS_" in line and len(line) < _MAX_LENGTH and (condition_text := _opened(line)):
            open_blocks.append((depth - 1, number + 1, needed(from_preprocessor(condition_text, tristates))))
    return sorted(blocks, key=lambda b: (b[0], b[1]))
