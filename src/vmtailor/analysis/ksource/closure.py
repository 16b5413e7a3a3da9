# SPDX-License-Identifier: Apache-2.0
"""The cheapest fragment that gives the wanted symbols, with everything that their dependencies ask for.

Cost is the number of added symbols with a prompt. Symbols that the baseline does not have cost most, because no trace
has seen them work. So tracing comes with its two symbols, and not with the prover of the order of locks, which selects
it, too. Of `A || B` the cheaper side is taken. A symbol without prompt is reached through the cheapest of its selectors
and defaults."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import kconfiglib as k

from vmtailor.analysis.ksource.kconfig import Kconfig, Lost, terms

_MAX_DEPTH = 24
_NO: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Added:
    """A symbol that must be set because `parent` needs it; `how` says in which way."""

    name: str
    value: str
    parent: str
    how: str


@dataclass(frozen=True)
class Closure:
    """`fragment`: symbols wanted, then symbols added. `lost`: wanted ones that no addition can bring."""

    fragment: tuple[tuple[str, str], ...]
    added: tuple[Added, ...]
    lost: tuple[Lost, ...]


def close(
    kconfig: Kconfig, wanted: Iterable[tuple[str, str]], modules: Container[str] = (), baseline: Mapping[str, str] = _NO
) -> Closure:
    """Find the symbols to add to `wanted` so that all of it is resolved as asked. A symbol that is wanted as `n` is
    never added. `modules`: symbols that are added as m where a module needs them, and as y otherwise. They are y, too,
    where a symbol that is y selects one that was to be m. `baseline`: name → value where the container worked."""
    values = dict(wanted)
    forbidden = {n for n, v in values.items() if v == "n"}
    added: dict[str, Added] = {}
    while True:
        fragment = [*values.items(), *((a.name, a.value) for a in added.values())]
        lost = kconfig.lost(fragment)
        # A name wanted n that is lost is a fact to report: nothing that is added can switch a symbol off.
        search = _Search(kconfig, forbidden, baseline)
        found: dict[str, Added] = {}
        selected = [item.name for item in lost if (item.wanted, item.got) == ("m", "y") and item.name in modules]
        if selected:
            values |= {name: "y" for name in selected if name in values}
            added |= {name: replace(added[name], value="y") for name in selected if name in added}
            continue
        for item in lost:
            if item.wanted in ("y", "m") and kconfig.known(item.name):
                for extra, (parent, how) in (search.visible(item.name) or {}).items():
                    if extra not in values and extra not in added:
                        value = "m" if item.wanted == "m" and extra in modules else "y"
                        if found.get(extra, Added(extra, "m", parent, how)).value == "m":
                            found[extra] = Added(extra, value, parent, how)
        if not found:
            return Closure(tuple(fragment), tuple(added.values()), lost)
        added |= found


def addable(kconfig: Kconfig, fragment: Iterable[tuple[str, str]], names: Sequence[str]) -> tuple[str, ...]:
    """Return those of `names` that can be set to y beside a fragment without losing any symbol that the fragment asks
    for.

    Found by halving, as nearly all can; that two of them exclude each other is not seen."""
    base = dict(fragment)
    already = {item.name for item in close(kconfig, base.items()).lost}

    def fits(part: Sequence[str]) -> bool:
        lost = close(kconfig, {**base, **dict.fromkeys(part, "y")}.items()).lost
        return {item.name for item in lost} <= already

    def kept(part: Sequence[str]) -> Iterator[str]:
        if fits(part):
            yield from part
        elif len(part) > 1:
            middle = len(part) // 2
            yield from kept(part[:middle])
            yield from kept(part[middle:])

    return tuple(kept(names))


#: A way to make an expression true: the symbols to set, each with its parent and how that needs it; None: there is no
#: way.
_Way = dict[str, tuple[str, str]] | None


class _Search:
    """Looks for the cheapest additions, under the values that the tree has now."""

    def __init__(self, kconfig: Kconfig, forbidden: set[str], baseline: Mapping[str, str]) -> None:
        self._kconfig = kconfig
        self._baseline = baseline
        self._forbidden = forbidden
        self._memo: dict[str, _Way] = {}
        self._path: list[str] = []
        self._cut = False  # a cycle or the depth limit cut the search below: the result must not be kept

    def visible(self, name: str, parent: str = "") -> _Way:
        """Return the cheapest additions that let a symbol have the value y. `parent` is the symbol that depends on
        it."""
        symbol = self._kconfig.symbols[name]
        if not self._kconfig.prompted(name):
            return self._reach(symbol, parent)
        self._path.append(name)
        ways = [self._satisfy(node.prompt[1], name) for node in symbol.nodes if node.prompt]
        self._path.pop()
        return self._cheapest(ways)

    def _symbol(self, symbol: Any, parent: str) -> _Way:
        name = symbol.name
        if symbol.is_constant or name in ("y", "m", "n"):
            return None if name == "n" else {}
        if symbol.tri_value == 2:
            return {}
        if name in self._forbidden or not self._kconfig.is_switch(name):
            return None
        if name in self._memo:
            way = self._memo[name]
        elif name in self._path or len(self._path) > _MAX_DEPTH:
            self._cut = True
            return None
        else:
            before, self._cut = self._cut, False
            way = self.visible(name, parent)
            if way is not None or not self._cut:
                self._memo[name] = way
            self._cut = self._cut or before
        if way is None or not self._kconfig.prompted(name):
            return way
        return {**way, name: (parent, f"{parent} depends on it")}

    def _reach(self, symbol: Any, wanted_by: str) -> _Way:
        """Return a symbol without prompt: through a selector, or through a default."""
        name = symbol.name
        self._path.append(name)
        ways: list[_Way] = []
        for term in terms(symbol.rev_dep, k.OR):
            ways.append(self._satisfy(term, name))
        for value, condition in symbol.defaults:
            first = self._satisfy(value, name)
            second = self._satisfy(condition, name) if first is not None else None
            ways.append(None if first is None or second is None else first | second)
        self._path.pop()
        way = self._cheapest(ways)
        if way is None:
            return None
        because = (
            (wanted_by, f"brings in {name}, which {wanted_by} depends on") if wanted_by else (name, f"brings in {name}")
        )
        return {extra: because if parent == name else (parent, how) for extra, (parent, how) in way.items()}

    def _satisfy(self, expression: Any, parent: str) -> _Way:
        if k.expr_value(expression) == 2:
            return {}
        if isinstance(expression, k.Symbol):
            return self._symbol(expression, parent)
        if isinstance(expression, k.Choice):
            return self._cheapest([self._satisfy(n.prompt[1], parent) for n in expression.nodes if n.prompt])
        operator, *operands = expression
        if operator == k.AND:
            left = self._satisfy(operands[0], parent)
            right = self._satisfy(operands[1], parent) if left is not None else None
            return left | right if left is not None and right is not None else None
        if operator == k.OR:
            return self._cheapest([self._satisfy(o, parent) for o in operands])
        return self._relation(operator, operands, parent)

    def _relation(self, operator: int, operands: list[Any], parent: str) -> _Way:
        """`X=y` and `X!=n` ask for X; nothing that is added makes `!X` true."""
        if operator == k.NOT:
            return None
        wants_on = (operator == k.EQUAL and operands[1].name == "y") or (
            operator == k.UNEQUAL and operands[1].name == "n"
        )
        return self._symbol(operands[0], parent) if wants_on else None

    def _cheapest(self, ways: list[_Way]) -> _Way:
        possible = [w for w in ways if w is not None]
        return min(possible, key=self._cost) if possible else None

    def _cost(self, way: Mapping[str, object]) -> tuple[int, int, int]:
        """Return symbols that the baseline does not have, all symbols, and those that it has as modules."""
        values = [self._baseline.get(name) for name in way]
        return sum(value not in ("y", "m") for value in values), len(way), values.count("m")
