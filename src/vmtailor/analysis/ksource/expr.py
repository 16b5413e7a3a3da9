# SPDX-License-Identifier: Apache-2.0
"""Conditions over configuration symbols: `NET && (INET || !IPV6)`. A symbol counts as true when it is y or m.

What a condition says about anything else (compiler macros, constants) is `UNKNOWN`: it neither asks for a symbol nor
rules one out, and disappears from conjunctions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Constant:
    """TRUE, FALSE or UNKNOWN."""

    value: bool | None

    def __str__(self) -> str:
        return {True: "1", False: "0", None: "?"}[self.value]


@dataclass(frozen=True, slots=True)
class Symbol:
    """A configuration symbol, without CONFIG_."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Not:
    operand: Expr

    def __str__(self) -> str:
        return f"!{_wrapped(self.operand)}"


@dataclass(frozen=True, slots=True)
class And:
    operands: tuple[Expr, ...]

    def __str__(self) -> str:
        return " && ".join(_wrapped(o) for o in self.operands)


@dataclass(frozen=True, slots=True)
class Or:
    operands: tuple[Expr, ...]

    def __str__(self) -> str:
        return " || ".join(_wrapped(o) for o in self.operands)


Expr = Constant | Symbol | Not | And | Or

TRUE = Constant(True)
FALSE = Constant(False)
UNKNOWN = Constant(None)


def _wrapped(expression: Expr) -> str:
    return f"({expression})" if isinstance(expression, And | Or) else str(expression)


def conjunction(*operands: Expr) -> Expr:
    """All of them. UNKNOWN is passed over (but all UNKNOWN stays UNKNOWN)."""
    flat: dict[Expr, None] = {}
    for operand in operands:
        flat |= dict.fromkeys(operand.operands if isinstance(operand, And) else (operand,))
    if FALSE in flat:
        return FALSE
    rest = tuple(o for o in flat if not isinstance(o, Constant))
    if not rest:
        return UNKNOWN if UNKNOWN in flat else TRUE
    return rest[0] if len(rest) == 1 else And(rest)


def disjunction(*operands: Expr) -> Expr:
    """Any of them. UNKNOWN makes the whole unknown, unless one is TRUE."""
    flat: dict[Expr, None] = {}
    for operand in operands:
        flat |= dict.fromkeys(operand.operands if isinstance(operand, Or) else (operand,))
    if TRUE in flat:
        return TRUE
    if UNKNOWN in flat:
        return UNKNOWN
    rest = _absorbed([o for o in flat if o != FALSE])
    if not rest:
        return FALSE
    if any(Not(o) in rest for o in rest if isinstance(o, Symbol)):
        return TRUE
    return rest[0] if len(rest) == 1 else Or(tuple(rest))


def _absorbed(operands: list[Expr]) -> list[Expr]:
    """`A || (A && B)` is A: drop operands that ask for all that another one asks for, and more."""
    parts = [frozenset(o.operands) if isinstance(o, And) else frozenset({o}) for o in operands]
    return [o for o, mine in zip(operands, parts, strict=True) if not any(other < mine for other in parts)]


def negation(operand: Expr) -> Expr:
    """Not it; the negation of UNKNOWN is UNKNOWN."""
    if isinstance(operand, Constant):
        return UNKNOWN if operand.value is None else Constant(not operand.value)
    return operand.operand if isinstance(operand, Not) else Not(operand)


def symbols(expression: Expr) -> frozenset[str]:
    """Names of the symbols that occur."""
    if isinstance(expression, Symbol):
        return frozenset({expression.name})
    if isinstance(expression, Not):
        return symbols(expression.operand)
    if isinstance(expression, And | Or):
        return frozenset().union(*(symbols(o) for o in expression.operands))
    return frozenset()


def holds(expression: Expr, enabled: Container[str]) -> bool:
    """Whether it is true when just the symbols `enabled` are set. UNKNOWN counts as true."""
    if isinstance(expression, Symbol):
        return expression.name in enabled
    if isinstance(expression, Not):
        return not holds(expression.operand, enabled) or expression.operand == UNKNOWN
    if isinstance(expression, And):
        return all(holds(o, enabled) for o in expression.operands)
    if isinstance(expression, Or):
        return any(holds(o, enabled) for o in expression.operands)
    return expression.value is not False


def asked_for(expression: Expr, enabled: Container[str]) -> tuple[str, ...]:
    """A least set of symbols of `enabled` that makes the expression true, in its order; empty when none is needed.

    An alternative takes the first side that is enough. Where `enabled` does not make it true at all, all of the
    symbols it wants set count as enabled.
    """
    order = list(dict.fromkeys(_in_order(expression)))
    kept = {s for s in order if s in enabled}
    if not holds(expression, kept):
        kept = set(order)
        if not holds(expression, kept):
            return ()
    # Under a negation a symbol can become superfluous once another one is gone: until nothing changes.
    while (
        found := next((n for n in reversed(order) if n in kept and holds(expression, kept - {n})), None)
    ) is not None:
        kept.discard(found)
    return tuple(s for s in order if s in kept)


def _in_order(expression: Expr) -> list[str]:
    if isinstance(expression, Symbol):
        return [expression.name]
    if isinstance(expression, Not):
        return _in_order(expression.operand)
    if isinstance(expression, And | Or):
        return [s for o in expression.operands for s in _in_order(o)]
    return []


# ---- reading: C preprocessor conditions, and our own text form

_TOKEN = re.compile(
    r"\s*(?:(?P<op>&&|\|\||[!()?:,]|[<>=!]=|<<|>>|[<>+\-*/%&|^~])|(?P<name>[A-Za-z_]\w*)|(?P<number>\d\w*)|(?P<other>.))"
)
#: Macros of include/linux/kconfig.h whose argument is a symbol.
_TESTS = frozenset({"defined", "IS_ENABLED", "IS_BUILTIN", "IS_MODULE", "IS_REACHABLE"})


class _Reader:
    def __init__(self, text: str, atom: Callable[[str], Expr], digits_are_names: bool = False) -> None:
        self.digits_are_names = digits_are_names  # of symbols such as 9P_FS, where there is no CONFIG_ before them
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
        if kind == "number" and self.digits_are_names and text not in ("0", "1"):
            return self.atom(text)
        if kind == "number":
            return TRUE if text.rstrip("uUlL").strip("0xX") else FALSE
        return self._named(text) if kind == "name" else UNKNOWN

    def _named(self, text: str) -> Expr:
        bracket = self.peek() == "("
        if bracket and text not in _TESTS:  # a macro with arguments: skip them
            self._skip_arguments()
            return UNKNOWN
        if text not in _TESTS:
            return self.atom(text)
        if bracket:
            self.next()
        found = self.atom(self.next()[1])
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


def _config_atom(name: str) -> Expr:
    if not name.startswith("CONFIG_"):
        return UNKNOWN
    return Symbol(name[7:].removesuffix("_MODULE") if name.endswith("_MODULE") else name[7:])


@lru_cache(maxsize=65536)
def from_preprocessor(text: str) -> Expr:
    """The condition of an `#if`, without comments. Never raises: what is not understood is UNKNOWN."""
    try:
        return _Reader(text, _config_atom).either()
    except RecursionError:
        return UNKNOWN


@lru_cache(maxsize=65536)
def parse(text: str) -> Expr:
    """Read `str(expression)` back."""
    return UNKNOWN if text == "?" else _Reader(text, Symbol, digits_are_names=True).either()
