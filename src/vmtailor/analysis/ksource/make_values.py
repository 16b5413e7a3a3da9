# SPDX-License-Identifier: Apache-2.0
"""Values of Makefile variables under all configurations at once: lists of words, each with its condition.

A place that needs one text (a name, the side of a comparison) gets the alternatives of a value, of which one holds. A
value that make would ask a shell for, or takes from outside the tree, is a word without text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum

from vmtailor.analysis.ksource.expr import (
    FALSE,
    TRUE,
    UNKNOWN,
    Equals,
    Expr,
    Symbol,
    conjunction,
    disjunction,
    negation,
    without,
)
from vmtailor.analysis.ksource.make_lines import arguments, closing, pieces

#: Reads a file of the tree by its path below the root; None when it is not there.
Reader = Callable[[str], str | None]


class Kind(StrEnum):
    """The kinds of a configuration symbol. `OTHER` is a number or text, whose value is not followed."""

    BOOL = "bool"
    TRISTATE = "tristate"
    OTHER = "other"


#: Kind of a symbol by its name.
KindOf = Callable[[str], Kind]

_MOST_ALTERNATIVES = 48
_MOST_EXCLUSIVE = 6
_MOST_WORDS = 20_000
_MOST_EXPANSIONS = 100_000
_MOST_NESTED = 24


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a list, with the condition under which it is in it. `text` None: not known what it is."""

    text: str | None
    condition: Expr


#: One of several texts, with the condition under which it is the one; None for one that is not known.
Alternative = tuple[Expr, str | None]

NOT_KNOWN = (Word(None, TRUE),)


def under(condition: Expr, words: Sequence[Word]) -> list[Word]:
    """Return the words, each under a further condition."""
    if condition == TRUE:
        return list(words)
    found = (Word(w.text, conjunction(condition, w.condition)) for w in words)
    return [w for w in found if w.condition != FALSE]


def present(words: Sequence[Word]) -> Expr:
    """Return the condition that a list is not empty. A word that is not known may be none."""
    return disjunction(*(w.condition if w.text is not None else conjunction(w.condition, UNKNOWN) for w in words))


def alternatives(words: Sequence[Word]) -> list[Alternative]:
    """Return all texts that a list can come to, each once; the words joined by blanks."""
    if len(words) <= _MOST_EXCLUSIVE and _exclusive(words):
        return _one_of(words)
    found: dict[str | None, Expr] = {"": TRUE}
    for word in words:
        following: dict[str | None, Expr] = {}

        def note(text: str | None, condition: Expr, following: dict[str | None, Expr] = following) -> None:
            if condition != FALSE:
                following[text] = disjunction(following.get(text, FALSE), condition)

        for text, condition in found.items():
            note(_after(text, word.text), conjunction(condition, word.condition))
            note(text, without(condition, word.condition))
        found = following
        if len(found) > _MOST_ALTERNATIVES:
            return [(TRUE, None)]
    return [(condition, text) for text, condition in found.items()]


def _exclusive(words: Sequence[Word]) -> bool:
    """Return whether at most one of the words can be there."""
    return all(
        conjunction(one.condition, other.condition) == FALSE
        for index, one in enumerate(words) for other in words[index + 1 :]
    )  # fmt: skip


def _one_of(words: Sequence[Word]) -> list[Alternative]:
    found: dict[str | None, Expr] = {}
    for word in words:
        found[word.text] = disjunction(found.get(word.text, FALSE), word.condition)
    none = negation(disjunction(*(word.condition for word in words)))
    if none != FALSE:
        found[""] = disjunction(found.get("", FALSE), none)
    return [(condition, text) for text, condition in found.items()]


def _after(text: str | None, more: str | None) -> str | None:
    if text is None or more is None:
        return None
    return f"{text} {more}" if text else more


@dataclass(slots=True)
class _Part:
    """A part of a variable's value: words, or a text that is expanded when it is asked for."""

    condition: Expr
    words: list[Word] | None = None
    text: str = ""


#: Evaluates a function: the scope, the arguments as they stand, → words.
Function = Callable[["MakeScope", list[str]], list[Word]]


@dataclass
class MakeScope:
    """The variables of one Makefile. `given`: what stands for names that no line sets (None: it is not known)."""

    kind_of: KindOf
    given: Callable[[str], Sequence[Word]]
    functions: dict[str, Function]
    read: Reader = lambda path: None
    _variables: dict[str, list[_Part]] = field(default_factory=dict)
    _simple: set[str] = field(default_factory=set)
    _local: dict[str, list[Word]] = field(default_factory=dict)
    _expanding: list[str] = field(default_factory=list)
    _left: int = _MOST_EXPANSIONS

    # ---- setting

    def names(self) -> tuple[str, ...]:
        """Return all variables that some line has set."""
        return tuple(self._variables)

    def declare(self, *names: str) -> None:
        """Empty variables, which expand what is added to them at once."""
        for name in names:
            self._variables[name] = []
            self._simple.add(name)

    def set(self, name: str, operator: str, value: str, condition: Expr) -> None:
        """Take an assignment into account that is carried out under a condition."""
        if condition == FALSE:
            return
        if operator == "?=":
            condition = conjunction(condition, negation(self.defined(name)))
            if condition == FALSE:
                return
        before = self._variables.get(name)
        if before is None:
            before = [_Part(TRUE, list(self._outside(name)))] if operator in ("+=", "?=") or condition != TRUE else []
        simple = operator in (":=", "::=", ":::=") or (operator == "+=" and name in self._simple)
        if operator == "!=":
            part = _Part(condition, list(NOT_KNOWN))
        elif simple:
            part = _Part(condition, self.words(value))
        else:
            part = _Part(condition, None, value)
        if operator == "+=":
            self._variables[name] = [*before, part]
            return
        otherwise = negation(condition)
        kept = (_Part(conjunction(old.condition, otherwise), old.words, old.text) for old in before)
        self._variables[name] = [*(old for old in kept if old.condition != FALSE), part]
        if simple:
            self._simple.add(name)
        elif condition == TRUE:
            self._simple.discard(name)

    def add_words(self, name: str, words: Sequence[Word]) -> None:
        """Add words to a list."""
        self._variables.setdefault(name, []).append(_Part(TRUE, list(words)))

    # ---- asking

    def value(self, name: str) -> list[Word]:
        """Return the words of a variable."""
        if name in self._local:
            return self._local[name]
        parts = self._variables.get(name)
        if parts is None:
            return list(self._outside(name))
        if name in self._expanding or len(self._expanding) > _MOST_NESTED:
            return list(NOT_KNOWN)
        self._expanding.append(name)
        found = [
            word
            for part in parts
            for word in under(part.condition, self.words(part.text) if part.words is None else part.words)
        ]
        self._expanding.pop()
        return found

    def defined(self, name: str) -> Expr:
        """Return the condition that a variable has a value at all (`ifdef`)."""
        parts = self._variables.get(name)
        if parts is None:
            return present(self._outside(name))
        each = (part.condition if part.words is None else conjunction(part.condition, present(part.words))
                for part in parts if part.words is not None or part.text)  # fmt: skip
        return disjunction(*each)

    def _outside(self, name: str) -> Sequence[Word]:
        if not name.startswith("CONFIG_"):
            return self.given(name)
        symbol = name[7:]
        kind = self.kind_of(symbol)
        if kind is Kind.BOOL:
            return (Word("y", Symbol(symbol)),)
        if kind is Kind.TRISTATE:
            return (Word("y", Equals(symbol, "y")), Word("m", Equals(symbol, "m")))
        return NOT_KNOWN

    @contextmanager
    def bound(self, name: str, words: list[Word]) -> Iterator[None]:
        """Give a variable a value for as long as the block lasts (`foreach`)."""
        before = self._local.get(name)
        self._local[name] = words
        try:
            yield
        finally:
            if before is None:
                del self._local[name]
            else:
                self._local[name] = before

    # ---- expanding

    def words(self, text: str) -> list[Word]:
        """Return the words of a text with references."""
        if "$" not in text:
            return [Word(w, TRUE) for w in text.split()]
        found: list[Word] = []
        for piece in pieces(text):
            found += self._piece(piece)
            if len(found) > _MOST_WORDS:
                return list(NOT_KNOWN)
        return found

    def texts(self, text: str) -> list[Alternative]:
        """Return all that a text can come to."""
        split = pieces(text) if "$" in text else []
        return self._piece_texts(split[0]) if len(split) == 1 else alternatives(self.words(text))

    def nonempty(self, text: str) -> Expr:
        """Return the condition that a text is not empty."""
        found = []
        for piece in pieces(text):
            for part in _segments(piece):
                if isinstance(part, str):
                    return TRUE
                found.append(present(self._reference(part.inner)))
        return disjunction(*found)

    def _piece(self, piece: str) -> list[Word]:
        segments = _segments(piece)
        if len(segments) == 1:
            only = segments[0]
            return [Word(only, TRUE)] if isinstance(only, str) else self._reference(only.inner)
        return [
            Word(word, condition)
            for condition, text in self._piece_texts(piece)
            for word in ((None,) if text is None else tuple(text.split()))
        ]

    def _piece_texts(self, piece: str) -> list[Alternative]:
        found: list[Alternative] = [(TRUE, "")]
        for segment in _segments(piece):
            more: list[Alternative] = (
                [(TRUE, segment)] if isinstance(segment, str) else alternatives(self._reference(segment.inner))
            )
            found = [
                (both, None if text is None or end is None else text + end)
                for condition, text in found
                for also, end in more
                if (both := conjunction(condition, also)) != FALSE
            ]
            if len(found) > _MOST_ALTERNATIVES:
                return [(TRUE, None)]
        return found

    def _reference(self, inner: str) -> list[Word]:
        """Return the text between the brackets of a `$(…)`."""
        self._left -= 1
        if self._left < 0:
            return list(NOT_KNOWN)
        inner = inner.strip()
        name, blank, rest = inner.partition(" ") if "\t" not in inner else inner.replace("\t", " ").partition(" ")
        if blank and "$" not in name:
            function = self.functions.get(name)
            return list(NOT_KNOWN) if function is None else self._call(function, arguments(rest.lstrip()))
        if "$" not in inner and ":" not in inner:
            return self.value(inner)
        head, colon, change = _at_colon(inner)
        if colon and "=" in change:
            old, _, new = change.partition("=")
            if "%" not in old:
                old, new = "%" + old, "%" + new
            substitute = self.functions.get("patsubst")
            return list(NOT_KNOWN) if substitute is None else self._call(substitute, [old, new, f"$({head})"])
        found: list[Word] = []
        for condition, text in self.texts(inner):
            found += under(condition, NOT_KNOWN if text is None else self.value(text))
        return found

    def _call(self, function: Function, parts: list[str]) -> list[Word]:
        if len(self._expanding) > _MOST_NESTED:
            return list(NOT_KNOWN)
        self._expanding.append("")
        found = function(self, parts)
        self._expanding.pop()
        return found


@dataclass(frozen=True, slots=True)
class _Reference:
    inner: str


def _segments(piece: str) -> list[str | _Reference]:
    """Literal texts and references of one piece."""
    found: list[str | _Reference] = []
    literal = ""
    index = 0
    while index < len(piece):
        char = piece[index]
        following = piece[index + 1 : index + 2]
        if char != "$" or not following:
            literal += char
            index += 1
        elif following == "$":
            literal += "$"
            index += 2
        else:
            if literal:
                found.append(literal)
                literal = ""
            end = closing(piece, index + 1) if following in "({" else index + 1
            found.append(_Reference(piece[index + 2 : end] if following in "({" else following))
            index = end + 1
    if literal:
        found.append(literal)
    return found


def _at_colon(text: str) -> tuple[str, str, str]:
    """Split at the first colon outside brackets."""
    depth = 0
    for index, char in enumerate(text):
        depth += (char in "({") - (char in ")}")
        if char == ":" and depth == 0:
            return text[:index], ":", text[index + 1 :]
    return text, "", ""
