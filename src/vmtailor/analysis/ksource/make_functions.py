# SPDX-License-Identifier: Apache-2.0
"""The functions of make that lists of objects are made with. All others (`call`, `shell` …) give what is not known."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from functools import partial

from vmtailor.analysis.ksource.expr import FALSE, TRUE, UNKNOWN, Expr, conjunction, disjunction, negation
from vmtailor.analysis.ksource.make_values import NOT_KNOWN, Alternative, Function, MakeScope, Word, present, under
from vmtailor.base.text import is_number


def _both(one: Alternative, other: Alternative) -> tuple[Expr, str, str] | None:
    """Return two alternatives at once; None when they exclude each other or one is not known."""
    condition = conjunction(one[0], other[0])
    return None if condition == FALSE or one[1] is None or other[1] is None else (condition, one[1], other[1])


def _is_literal(alternatives: list[Alternative]) -> str | None:
    return alternatives[0][1] if len(alternatives) == 1 and alternatives[0][0] == TRUE else None


def _same(scope: MakeScope, arguments: list[str]) -> list[Word]:
    return scope.words(arguments[0])


def _sort(scope: MakeScope, arguments: list[str]) -> list[Word]:
    found: dict[str | None, Expr] = {}
    for word in scope.words(arguments[0]):
        found[word.text] = disjunction(found.get(word.text, FALSE), word.condition)
    return [Word(text, found[text]) for text in sorted(found, key=lambda t: t or "")]


def _each(change: Callable[[str], str], scope: MakeScope, arguments: list[str]) -> list[Word]:
    """Return a function of every word by itself."""
    words = ((w, None if w.text is None else change(w.text)) for w in scope.words(arguments[0]))
    return [Word(text, word.condition) for word, text in words if text is None or text]


def _add(before: bool, scope: MakeScope, arguments: list[str]) -> list[Word]:
    found = []
    words = scope.words(",".join(arguments[1:]))
    for condition, text in scope.texts(arguments[0]):
        for word in under(condition, words):
            known = None if word.text is None or text is None else text + word.text if before else word.text + text
            found.append(Word(known, word.condition))
    return found


def matches(pattern: str, word: str) -> bool:
    """Return whether a word fits a pattern with one `%`."""
    start, sign, end = pattern.partition("%")
    if not sign:
        return pattern == word
    return len(word) >= len(start) + len(end) and word.startswith(start) and word.endswith(end)


def _filter(keep: bool, scope: MakeScope, arguments: list[str]) -> list[Word]:
    patterns = scope.words(arguments[0])
    found = []
    for word in scope.words(",".join(arguments[1:])):
        if word.text is None:
            fits: Expr = UNKNOWN
        else:
            fits = disjunction(*(
                conjunction(p.condition, UNKNOWN) if p.text is None else p.condition
                for p in patterns if p.text is None or matches(p.text, word.text)
            ))  # fmt: skip
        condition = conjunction(word.condition, fits if keep else negation(fits))
        if condition != FALSE:
            found.append(Word(word.text, condition))
    return found


def _patsubst(scope: MakeScope, arguments: list[str]) -> list[Word]:
    pattern, replacement = (_is_literal(scope.texts(a.strip())) for a in arguments[:2])
    words = scope.words(",".join(arguments[2:]))
    if pattern is None or replacement is None:
        return [Word(None, w.condition) for w in words]
    return [
        Word(text, w.condition)
        for w in words
        for text in ((None,) if w.text is None else _replaced(pattern, replacement, w.text).split())
    ]


def _replaced(pattern: str, replacement: str, word: str) -> str:
    if not matches(pattern, word):
        return word
    start, sign, end = pattern.partition("%")
    stem = word[len(start) : len(word) - len(end)] if sign else ""
    return replacement.replace("%", stem, 1) if sign else replacement


def _subst(scope: MakeScope, arguments: list[str]) -> list[Word]:
    froms, tos = scope.texts(arguments[0].strip()), scope.texts(arguments[1].strip())
    found: list[Word] = []
    for word in scope.words(",".join(arguments[2:])):
        if word.text is None:
            found.append(word)
            continue
        for old_condition, old in froms:
            for new_condition, new in tos:
                condition = conjunction(old_condition, new_condition, word.condition)
                if condition == FALSE:
                    continue
                if old is None or (new is None and old in word.text):
                    found.append(Word(None, condition))
                else:
                    text = word.text.replace(old, new or "") if old else word.text
                    found += [Word(one, condition) for one in text.split()]
    return found


def _findstring(scope: MakeScope, arguments: list[str]) -> list[Word]:
    found = []
    for one in scope.texts(arguments[0]):
        for other in scope.texts(arguments[1]):
            both = _both(one, other)
            if both is None:
                found.append(Word(None, conjunction(one[0], other[0])))
            elif both[1] in both[2]:
                found += [Word(part, both[0]) for part in both[1].split()]
    return [w for w in found if w.condition != FALSE]


def _picked(pick: Callable[[list[str]], list[str]], scope: MakeScope, arguments: list[str]) -> list[Word]:
    """Return some words by their place."""
    return [
        Word(word, condition)
        for condition, text in scope.texts(arguments[-1])
        for word in ((None,) if text is None else tuple(pick(text.split())))
    ]


def _word(scope: MakeScope, arguments: list[str]) -> list[Word]:
    number = arguments[0].strip()
    if not is_number(number) or len(number) > 4:
        return list(NOT_KNOWN)
    return _picked(lambda words: words[int(number) - 1 : int(number)] if int(number) else [], scope, arguments)


def _if(scope: MakeScope, arguments: list[str]) -> list[Word]:
    condition = scope.nonempty(arguments[0])
    found = [] if condition == FALSE else under(condition, scope.words(arguments[1]))
    otherwise = negation(condition)
    if len(arguments) > 2 and otherwise != FALSE:
        found += under(otherwise, scope.words(",".join(arguments[2:])))
    return found


def _and(scope: MakeScope, arguments: list[str]) -> list[Word]:
    condition = conjunction(*(scope.nonempty(a) for a in arguments[:-1]))
    return under(condition, scope.words(arguments[-1]))


def _or(scope: MakeScope, arguments: list[str]) -> list[Word]:
    found: list[Word] = []
    so_far: Expr = TRUE
    for argument in arguments:
        words = scope.words(argument)
        found += under(so_far, words)
        so_far = conjunction(so_far, negation(present(words)))
    return found


def _foreach(scope: MakeScope, arguments: list[str]) -> list[Word]:
    if "$" in arguments[0]:
        return list(NOT_KNOWN)
    found: list[Word] = []
    for word in scope.words(arguments[1]):
        with scope.bound(arguments[0].strip(), [Word(word.text, TRUE)]):
            found += under(word.condition, scope.words(",".join(arguments[2:])))
    return found


def _wildcard(scope: MakeScope, arguments: list[str]) -> list[Word]:
    """Return a file of the tree that is there. What a pattern finds, or what a build may have made, is not known."""
    found = []
    for word in scope.words(arguments[0]):
        there = word.text is not None and scope.read(posixpath.normpath(word.text)) is not None
        found.append(word if there else Word(None, word.condition))
    return found


def _folder(word: str) -> str:
    head = posixpath.split(word)[0]
    return "./" if not head else head if head.endswith("/") else head + "/"


def _origin(scope: MakeScope, arguments: list[str]) -> list[Word]:
    """Nothing is set on the command line; what no line sets may come from the environment."""
    name = arguments[0].strip()
    return [Word("file" if name in scope.names() else "undefined", TRUE)]


def _nothing(scope: MakeScope, arguments: list[str]) -> list[Word]:
    return []


def _of(least: int, function: Function) -> Function:
    """Return a function that needs so many arguments; with fewer its value is not known."""
    return lambda scope, arguments: function(scope, arguments) if len(arguments) >= least else list(NOT_KNOWN)


FUNCTIONS: dict[str, Function] = {
    "strip": _same,
    "sort": _sort,
    "abspath": partial(_each, posixpath.normpath),
    "addprefix": _of(2, partial(_add, True)),
    "addsuffix": _of(2, partial(_add, False)),
    "notdir": partial(_each, lambda word: word.rpartition("/")[2]),
    "dir": partial(_each, _folder),
    "basename": partial(_each, lambda word: posixpath.splitext(word)[0]),
    "suffix": partial(_each, lambda word: posixpath.splitext(word)[1]),
    "filter": _of(2, partial(_filter, True)),
    "filter-out": _of(2, partial(_filter, False)),
    "patsubst": _of(3, _patsubst),
    "subst": _of(3, _subst),
    "findstring": _of(2, _findstring),
    "firstword": partial(_picked, lambda words: words[:1]),
    "lastword": partial(_picked, lambda words: words[-1:]),
    "words": partial(_picked, lambda words: [str(len(words))]),
    "word": _of(2, _word),
    "if": _of(2, _if),
    "and": _and,
    "or": _or,
    "foreach": _of(3, _foreach),
    "wildcard": _wildcard,
    "origin": _origin,
    "info": _nothing,
    "warning": _nothing,
    "error": _nothing,
    "eval": _nothing,
}
