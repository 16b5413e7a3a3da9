# SPDX-License-Identifier: Apache-2.0
"""Conditions from text: those of the C preprocessor, and our own text form."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

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
)

_TOKEN = re.compile(
    r"\s++|(?P<op>&&|\|\||[!()?:,]|[<>=!]=|<<|>>|[<>+\-*/%&|^~=])|(?P<name>[A-Za-z_]\w*)|(?P<number>\d\w*)"
    r"|(?P<other>.)"
)
#: `defined`, and the macros of include/linux/kconfig.h whose argument is a symbol.
_TESTS = frozenset({"defined", "IS_ENABLED", "IS_BUILTIN", "IS_MODULE", "IS_REACHABLE"})

#: (test, name) → condition. The test is one of `_TESTS`; empty for a name that stands by itself.
_Atom = Callable[[str, str], Expr]


class _Reader:
    def __init__(self, text: str, atom: _Atom, own_form: bool = False) -> None:
        self.own_form = own_form  # `9P_FS=y`: no CONFIG_ before a symbol, and comparisons with y and m
        self.tokens = [(m.lastgroup or "", m.group(m.lastgroup or 0)) for m in _TOKEN.finditer(text) if m.lastgroup]
        self.position = 0
        self.atom = atom

    def peek(self) -> str:
        return self.tokens[self.position][1] if self.position < len(self.tokens) else ""

    def next(self) -> tuple[str, str]:
        token = self.tokens[self.position] if self.position < len(self.tokens) else ("", "")
        self.position += 1
        return token

    def either(self) -> Expr:
        parts = [self.both()]
        while self.peek() == "||":
            self.next()
            parts.append(self.both())
        return disjunction(*parts)

    def both(self) -> Expr:
        parts = [self.comparison()]
        while self.peek() == "&&":
            self.next()
            parts.append(self.comparison())
        return conjunction(*parts)

    def comparison(self) -> Expr:
        left = self.single()
        while self.peek() not in ("", "&&", "||", ")"):
            # Arithmetic and comparisons say nothing about a symbol: skip the operator and its right side.
            self.next()
            if self.peek() not in ("", "&&", "||", ")"):
                self.single()
            left = UNKNOWN
        return left

    def single(self) -> Expr:
        kind, text = self.next()
        if text == "!":
            return negation(self.single())
        if text == "(":
            inner = self.either()
            if self.peek() == ")":
                self.next()
            return inner
        if kind == "number" and self.own_form and text not in ("0", "1"):
            return self._own(text)
        if kind == "number":
            return TRUE if text.rstrip("uUlL").strip("0xX") else FALSE
        if kind != "name":
            return UNKNOWN
        return self._own(text) if self.own_form else self._named(text)

    def _own(self, name: str) -> Expr:
        if self.peek() != "=":
            return self.atom("", name)
        self.next()
        value = self.next()[1]
        return Equals(name, value) if value in ("y", "m") else UNKNOWN

    def _named(self, text: str) -> Expr:
        bracket = self.peek() == "("
        if bracket and text not in _TESTS:  # a macro with arguments: skip them
            self._skip_arguments()
            return UNKNOWN
        if text not in _TESTS:
            return self.atom("", text)
        if bracket:
            self.next()
        found = self.atom(text, self.next()[1])
        if bracket and self.peek() == ")":
            self.next()
        return found

    def _skip_arguments(self) -> None:
        depth = 0
        while self.position < len(self.tokens):
            text = self.next()[1]
            depth += (text == "(") - (text == ")")
            if depth == 0:
                return


def _config_atom(test: str, name: str, tristates: frozenset[str] | None) -> Expr:
    """Return the expression for a test of a CONFIG_ macro. CONFIG_X is defined where X is y, CONFIG_X_MODULE where it
    is m."""
    if not name.startswith("CONFIG_"):
        return UNKNOWN
    name = name[7:]
    module = name.removesuffix("_MODULE")
    known = tristates is not None
    if module != name and test in ("", "defined") and (tristates is None or module in tristates):
        return Equals(module, "m")
    if tristates is not None and name not in tristates:
        return FALSE if test == "IS_MODULE" else Symbol(name)
    if test == "IS_REACHABLE":  # an m is reachable from modules
        return disjunction(Equals(name, "y"), conjunction(Equals(name, "m"), UNKNOWN))
    if test in ("IS_BUILTIN", "IS_MODULE") or (known and test != "IS_ENABLED"):
        return Equals(name, "m" if test == "IS_MODULE" else "y")
    return Symbol(name)


@lru_cache(maxsize=65536)
def from_preprocessor(text: str, tristates: frozenset[str] | None = None) -> Expr:
    """Return the condition of an `#if`, without comments. Never raises: a text that is not understood is UNKNOWN.

    `tristates`: the symbols that may be m. Without them, `defined` counts as true for an m, too."""
    try:
        return _Reader(text, lambda test, name: _config_atom(test, name, tristates)).either()
    except RecursionError:
        return UNKNOWN


@lru_cache(maxsize=65536)
def parse(text: str) -> Expr:
    """Read `str(expression)` back."""
    return UNKNOWN if text == "?" else _Reader(text, lambda _, name: Symbol(name), own_form=True).either()
