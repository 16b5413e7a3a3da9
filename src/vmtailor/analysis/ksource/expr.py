# SPDX-License-Identifier: Apache-2.0
"""Conditions over configuration symbols: `NET && (INET=y || !IPV6)`. They are true, false, or not known.

A symbol by itself is true when it is y or m; `X=y` and `X=m` tell the two apart. A condition on anything else (compiler
macros, the output of a shell) is `UNKNOWN`. It neither asks for a symbol nor rules one out. It stays in conjunctions
and alternatives, so that a negation does not make it known."""

from __future__ import annotations

import operator
from collections.abc import Container, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Constant:
    """TRUE, FALSE or UNKNOWN."""

    value: bool | None

    def __str__(self) -> str:
        return {True: "1", False: "0", None: "?"}[self.value]


@dataclass(frozen=True, slots=True)
class Symbol:
    """A configuration symbol, without CONFIG_: true when it is y or m."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Equals:
    """A tristate symbol compared with `value`, `y` or `m`."""

    name: str
    value: str

    def __str__(self) -> str:
        return f"{self.name}={self.value}"


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


Expr = Constant | Symbol | Equals | Not | And | Or

TRUE = Constant(True)
FALSE = Constant(False)
UNKNOWN = Constant(None)

#: Alternatives longer than this are not searched for what can be put together.
_MANY = 16


def _wrapped(expression: Expr) -> str:
    return f"({expression})" if isinstance(expression, And | Or) else str(expression)


def negation(operand: Expr) -> Expr:
    """Return the negation; that of UNKNOWN is UNKNOWN."""
    if isinstance(operand, Constant):
        return UNKNOWN if operand.value is None else Constant(not operand.value)
    return operand.operand if isinstance(operand, Not) else Not(operand)


# ---- literals: one symbol, and the values of it that are meant, as a sum of these

_N, _M, _Y = 1, 2, 4
_ANY = _N | _M | _Y


def _literal(expression: Expr) -> tuple[str, int] | None:
    """Return (name, accepted values) of a condition on one symbol alone."""
    if isinstance(expression, Symbol):
        return expression.name, _M | _Y
    if isinstance(expression, Equals):
        return expression.name, _Y if expression.value == "y" else _M
    if isinstance(expression, Not) and (inner := _literal(expression.operand)) is not None:
        return inner[0], _ANY & ~inner[1]
    return None


def _of_values(name: str, values: int) -> Expr:
    """Return the condition that a symbol has one of these values."""
    if values in (0, _ANY):
        return TRUE if values else FALSE
    if values == _M | _Y:
        return Symbol(name)
    if values in (_M, _Y):
        return Equals(name, "y" if values == _Y else "m")
    return Not(_of_values(name, _ANY & ~values))


def without(expression: Expr, other: Expr) -> Expr:
    """Return the one condition, where the other does not hold."""
    return expression if conjunction(expression, other) == FALSE else conjunction(expression, negation(other))


# ---- all of, any of


def conjunction(*operands: Expr) -> Expr:
    """Return the condition that all hold. Statements about one symbol become one condition; a contradiction is
    FALSE."""
    if FALSE in operands:
        return FALSE
    some = [o for o in operands if o != TRUE]
    if len(some) <= 1:
        return some[0] if some else TRUE
    flat = dict.fromkeys(part for o in some for part in _parts(o))
    known: dict[str, int] = {}
    places: dict[str | Expr, None] = {}  # in their order: a symbol by its name, anything else by itself
    for one in flat:
        literal = _literal(one)
        if literal is not None:
            name, values = literal
            known[name] = known.get(name, _ANY) & values
            places[name] = None
        elif one not in (TRUE, UNKNOWN):
            places[one] = None
    if 0 in known.values():
        return FALSE
    found: dict[Expr, None] = {}
    for place in places:
        one = _of_values(place, known[place]) if isinstance(place, str) else _under(place, known)
        if one == FALSE or negation(one) in found:
            return FALSE
        if one == TRUE and isinstance(place, Or):  # a symbol stands where it was first asked for
            found |= dict.fromkeys(_of_values(n, known[n]) for n in _in_order(place) if n in known)
        found |= dict.fromkeys(one.operands if isinstance(one, And) else (one,))
    if UNKNOWN in flat:
        found.pop(UNKNOWN, None)
        found[UNKNOWN] = None
    rest = tuple(o for o in found if o != TRUE)
    if not rest:
        return TRUE
    return rest[0] if len(rest) == 1 else And(rest)


def _under(expression: Expr, known: Mapping[str, int]) -> Expr:
    """Return an expression without what the values known of symbols settle; TRUE or FALSE where they are enough for
    it."""
    if isinstance(expression, Not):
        inner = _under(expression.operand, known)
        return expression if inner is expression.operand else negation(inner)
    if isinstance(expression, And | Or):
        decides = isinstance(expression, Or)
        left = []
        for one in expression.operands:
            part = _under(one, known)
            if part == Constant(decides):
                return part
            if part != Constant(not decides):
                left.append(part)
        if len(left) == len(expression.operands) and all(map(operator.is_, left, expression.operands)):
            return expression
        return disjunction(*left) if decides else conjunction(*left)
    state = _settled(expression, known)
    return expression if state is None else Constant(state)


def _settled(expression: Expr, known: Mapping[str, int]) -> bool | None:
    literal = _literal(expression)
    if literal is None or literal[0] not in known:
        return None
    common = known[literal[0]] & literal[1]
    return False if not common else True if common == known[literal[0]] else None


def disjunction(*operands: Expr) -> Expr:
    """Any of them. Alternatives that differ in the value of one symbol only are put together."""
    if TRUE in operands:
        return TRUE
    some = [o for o in operands if o != FALSE]
    if len(some) <= 1:
        return some[0] if some else FALSE
    flat = dict.fromkeys(part for o in some for part in (o.operands if isinstance(o, Or) else (o,)))
    rest = _put_together(list(flat)) if len(flat) <= _MANY else _absorbed(list(flat))
    if not rest:
        return FALSE
    if TRUE in rest or any(Not(o) in rest for o in rest):
        return TRUE
    return rest[0] if len(rest) == 1 else Or(tuple(rest))


def _parts(expression: Expr) -> tuple[Expr, ...]:
    return expression.operands if isinstance(expression, And) else (expression,)


def _absorbed(operands: list[Expr]) -> list[Expr]:
    """`A || (A && B)` is A: drop operands that ask for all that another one asks for, and more."""
    parts = [frozenset(_parts(o)) for o in operands]
    if len(operands) > _MANY:
        return [o for o, mine in zip(operands, parts, strict=True) if not any(other < mine for other in parts)]
    kept = list(range(len(operands)))
    for index in range(len(operands)):
        if any(other != index and all(_implied(p, parts[index]) for p in parts[other]) for other in kept):
            kept.remove(index)
    return [operands[index] for index in kept]


def _implied(part: Expr, given: frozenset[Expr]) -> bool:
    """Return whether a part is true wherever all of `given` are."""
    if part in given:
        return True
    literal = _literal(part)
    if literal is None:
        return False
    others = (_literal(one) for one in given)
    return any(o is not None and o[0] == literal[0] and o[1] & ~literal[1] == 0 for o in others)


def _put_together(operands: list[Expr]) -> list[Expr]:
    """`A && B=y || A && B=m` is `A && B`, until nothing more can be put together."""
    changed = True
    while changed:
        operands = _absorbed(list(dict.fromkeys(_beside(operands))))
        changed = False
        for index, one in enumerate(operands):
            for later in range(index + 1, len(operands)):
                both = _either_of_two(one, operands[later])
                if both is not None:
                    operands[index] = both
                    del operands[later]
                    changed = True
                    break
            if changed:
                break
    return operands


def _beside(operands: list[Expr]) -> list[Expr]:
    """`A || (!A && B)` is `A || B`: beside a condition on one symbol, the others are asked only where it is false."""
    for literal in filter(None, map(_literal, operands)):
        known = {literal[0]: _ANY & ~literal[1]}
        operands = [o if _literal(o) == literal else _under(o, known) for o in operands]
    return [o for o in operands if o != FALSE]


def _either_of_two(one: Expr, other: Expr) -> Expr | None:
    """Return one condition in place of two alternatives; None when there is none."""
    mine, its = _parts(one), _parts(other)
    only_mine = [o for o in mine if o not in its]
    only_its = [o for o in its if o not in mine]
    if len(only_mine) != 1 or len(only_its) != 1:
        return None
    left, right = _literal(only_mine[0]), _literal(only_its[0])
    if left is None or right is None or left[0] != right[0]:
        return None
    wider = _of_values(left[0], left[1] | right[1])
    if len(mine) == len(its):
        return conjunction(*(wider if o == only_mine[0] else o for o in mine))
    return None


def needed(expression: Expr) -> Expr:
    """Return the part of a condition that is known to be needed, without the unknown beside it."""
    if isinstance(expression, And) and UNKNOWN in expression.operands:
        return conjunction(*(o for o in expression.operands if o != UNKNOWN))
    return expression


def symbols(expression: Expr) -> frozenset[str]:
    """Return names of the symbols that occur."""
    return frozenset(_in_order(expression))


def _in_order(expression: Expr) -> list[str]:
    if isinstance(expression, Symbol | Equals):
        return [expression.name]
    if isinstance(expression, Not):
        return _in_order(expression.operand)
    if isinstance(expression, And | Or):
        return [s for o in expression.operands for s in _in_order(o)]
    return []


# ---- under a configuration

#: Symbols that are set: with their values (y, m), or names alone, which are y then.
Enabled = Container[str] | Mapping[str, str]


def _state(name: str, enabled: Enabled) -> str:
    if name not in enabled:
        return "n"
    return enabled[name] if isinstance(enabled, Mapping) else "y"


def truth(expression: Expr, enabled: Enabled) -> bool | None:
    """Return True or False when just the symbols `enabled` are set; None where that cannot be told."""
    if isinstance(expression, Symbol):
        return expression.name in enabled
    if isinstance(expression, Equals):
        return _state(expression.name, enabled) == expression.value
    if isinstance(expression, Not):
        inner = truth(expression.operand, enabled)
        return None if inner is None else not inner
    if isinstance(expression, Constant):
        return expression.value
    decides = isinstance(expression, Or)
    found: bool | None = not decides
    for operand in expression.operands:
        one = truth(operand, enabled)
        if one is decides:
            return decides
        found = None if one is None else found
    return found


def holds(expression: Expr, enabled: Enabled) -> bool:
    """Return whether it is true when just the symbols `enabled` are set. An unknown part counts as true."""
    return truth(expression, enabled) is not False


def asked_for(expression: Expr, enabled: Enabled) -> tuple[str, ...]:
    """Return a least set of symbols of `enabled` that makes the expression true, in its order; empty when none is
    needed.

    An alternative takes the first side that is enough. If `enabled` does not make it true at all, all symbols that it
    wants set count as enabled, and as y."""
    order = list(dict.fromkeys(_in_order(expression)))
    kept = {s: _state(s, enabled) for s in order if s in enabled}
    if not holds(expression, kept):
        kept = next((some for some in (_wanted(expression), dict.fromkeys(order, "y")) if holds(expression, some)), {})
    # Under a negation a symbol can become superfluous once another one is gone: until nothing changes.
    while (found := next((n for n in reversed(order) if n in kept and _does_without(expression, kept, n)), "")) != "":
        del kept[found]
    return tuple(s for s in order if s in kept)


def _wanted(expression: Expr, positive: bool = True) -> dict[str, str]:
    """Return the symbols that stand where being set is what makes it true, all y."""
    if isinstance(expression, Symbol | Equals):
        return {expression.name: "y"} if positive else {}
    if isinstance(expression, Not):
        return _wanted(expression.operand, not positive)
    parts = expression.operands if isinstance(expression, And | Or) else ()
    return {name: "y" for part in parts for name in _wanted(part, positive)}


def _does_without(expression: Expr, kept: Mapping[str, str], name: str) -> bool:
    return holds(expression, {n: v for n, v in kept.items() if n != name})
