# SPDX-License-Identifier: Apache-2.0
"""The parsed Kconfig files of a tree as bytes: reading them back takes a fifth of the time of parsing.

They have what values depend on (types, defaults, dependencies, prompts with their places), and not the menus, help
texts and macros. An item is a symbol or a choice, named by its number; expressions are numbered after the items, each
after those that it is made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import kconfiglib as k
import msgspec

#: Change when what is written changes.
FORMAT = "1"
_NONE = -1


class _Symbol(msgspec.Struct, array_like=True):
    """One symbol. `defaults`: value, condition, …; `ranges`: low, high, condition, …; `prompts`: a text, its condition,
    number of a file and line, with an empty text and no condition where a place has none."""

    name: str
    kind: int
    constant: bool
    direct: int
    reverse: int
    weak: int
    choice: int
    environment: str | None
    defaults: list[int]
    ranges: list[int]
    prompts: list[tuple[str, int, int, int]]
    dependents: list[int]


class _Choice(msgspec.Struct, array_like=True):
    name: str | None
    kind: int
    optional: bool
    direct: int
    defaults: list[int]
    prompts: list[tuple[str, int, int, int]]
    members: list[int]
    dependents: list[int]


class _Tree(msgspec.Struct, array_like=True):
    """`expressions`: operator, left and right operand, …; `defined`: symbols in the order of the files."""

    files: list[str]
    symbols: list[_Symbol]
    choices: list[_Choice]
    expressions: list[int]
    defined: list[int]
    modules: int
    defconfig: int


@dataclass(slots=True)
class _Node:
    """A place that defines an item, as kconfiglib's nodes of menus are read."""

    prompt: tuple[str, Any] | None
    filename: str
    linenr: int


# ---- writing


def to_bytes(tree: Any) -> bytes:
    """Return the symbols and choices of a parsed tree (a `kconfiglib.Kconfig`) as bytes."""
    return msgspec.msgpack.encode(_Writer(tree).tree())


class _Writer:
    def __init__(self, tree: Any) -> None:
        self._kconfig = tree
        self._symbols = [*tree.const_syms.values(), *tree.syms.values()]
        items = [*self._symbols, *tree.unique_choices]
        self._number = {id(item): number for number, item in enumerate(items)}
        self._items = len(items)
        self._expressions: dict[tuple[int, int, int], int] = {}
        self._files: dict[str, int] = {}

    def tree(self) -> _Tree:
        symbols = [self._symbol(one) for one in self._symbols]
        choices = [self._choice(one) for one in self._kconfig.unique_choices]
        return _Tree(
            files=list(self._files),
            symbols=symbols,
            choices=choices,
            expressions=[number for triple in self._expressions for number in triple],
            defined=[self._number[id(one)] for one in self._kconfig.unique_defined_syms],
            modules=self._number[id(self._kconfig.modules)],
            defconfig=self._number.get(id(self._kconfig.defconfig_list), _NONE),
        )

    def _symbol(self, one: Any) -> _Symbol:
        return _Symbol(
            name=one.name,
            kind=one.orig_type,
            constant=one.is_constant,
            direct=self._of(one.direct_dep),
            reverse=self._of(one.rev_dep),
            weak=self._of(one.weak_rev_dep),
            choice=self._number[id(one.choice)] if one.choice is not None else _NONE,
            environment=one.env_var,
            defaults=self._all(part for pair in one.defaults for part in pair),
            ranges=self._all(part for triple in one.ranges for part in triple),
            prompts=self._prompts(one.nodes),
            dependents=sorted(self._all(one._dependents)),  # of a set
        )

    def _choice(self, one: Any) -> _Choice:
        return _Choice(
            name=one.name,
            kind=one.orig_type,
            optional=one.is_optional,
            direct=self._of(one.direct_dep),
            defaults=self._all(part for pair in one.defaults for part in pair),
            prompts=self._prompts(one.nodes),
            members=self._all(one.syms),
            dependents=sorted(self._all(one._dependents)),  # of a set
        )

    def _prompts(self, nodes: Iterable[Any]) -> list[tuple[str, int, int, int]]:
        found = []
        for node in nodes:
            text, condition = node.prompt or ("", None)
            file = self._files.setdefault(node.filename, len(self._files))
            found.append((text, _NONE if condition is None else self._of(condition), file, node.linenr))
        return found

    def _all(self, parts: Iterable[Any]) -> list[int]:
        return [self._of(part) for part in parts]

    def _of(self, expression: Any) -> int:
        """Return the number of an item or an expression."""
        if not isinstance(expression, tuple):
            return self._number[id(expression)]
        operator, left, *right = expression
        triple = (operator, self._of(left), self._of(right[0]) if right else _NONE)
        return self._items + self._expressions.setdefault(triple, len(self._expressions))


# ---- reading


def read_into(tree: Any, data: bytes) -> None:
    """Fill an unparsed `kconfiglib.Kconfig` with what `to_bytes` wrote.

    Raises msgspec.DecodeError or IndexError for bytes that it did not write."""
    stored = msgspec.msgpack.decode(data, type=_Tree)
    symbols = [_named(k.Symbol(), tree, one) for one in stored.symbols]
    choices = [_named(k.Choice(), tree, one) for one in stored.choices]
    terms: list[Any] = [*symbols, *choices]
    for operator, left, right in _in(3, stored.expressions):
        terms.append((operator, terms[left]) if right == _NONE else (operator, terms[left], terms[right]))
    for symbol, row in zip(symbols, stored.symbols, strict=True):
        _fill_symbol(symbol, row, terms, stored.files)
    for choice, chosen in zip(choices, stored.choices, strict=True):
        choice.is_optional = chosen.optional
        choice.direct_dep = terms[chosen.direct]
        choice.defaults = list(_in(2, map(terms.__getitem__, chosen.defaults)))
        choice.nodes = _nodes(chosen.prompts, terms, stored.files)
        choice.syms = [terms[number] for number in chosen.members]
        choice._dependents = {terms[number] for number in chosen.dependents}
    tree.const_syms = {one.name: one for one in symbols if one.is_constant}
    tree.syms = {one.name: one for one in symbols if not one.is_constant}
    tree.n, tree.m, tree.y = (tree.const_syms[name] for name in "nmy")
    tree.unique_defined_syms = [terms[number] for number in stored.defined]
    tree.unique_choices = choices
    tree.modules = terms[stored.modules]
    tree.defconfig_list = None if stored.defconfig == _NONE else terms[stored.defconfig]


def _in(size: int, parts: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
    """Yield the parts in tuples of a size."""
    return zip(*[iter(parts)] * size, strict=True)


def _named(item: Any, tree: Any, row: _Symbol | _Choice) -> Any:
    item.kconfig, item.name, item.orig_type = tree, row.name, row.kind
    return item


def _fill_symbol(symbol: Any, row: _Symbol, terms: Sequence[Any], files: Sequence[str]) -> None:
    symbol.is_constant = row.constant
    if row.constant:  # its value is its name, which nothing changes
        symbol._cached_str_val = row.name
        symbol._cached_tri_val = {"n": 0, "m": 1, "y": 2}.get(row.name, 0)
    symbol.direct_dep, symbol.rev_dep, symbol.weak_rev_dep = terms[row.direct], terms[row.reverse], terms[row.weak]
    symbol.env_var = row.environment
    if row.choice != _NONE:
        symbol.choice = terms[row.choice]
    if row.defaults:
        symbol.defaults = list(_in(2, map(terms.__getitem__, row.defaults)))
    if row.ranges:
        symbol.ranges = list(_in(3, map(terms.__getitem__, row.ranges)))
    if row.prompts:
        symbol.nodes = _nodes(row.prompts, terms, files)
    if row.dependents:
        symbol._dependents = set(map(terms.__getitem__, row.dependents))


def _nodes(rows: Iterable[tuple[str, int, int, int]], terms: Sequence[Any], files: Sequence[str]) -> list[_Node]:
    return [
        _Node(None if condition == _NONE else (text, terms[condition]), files[file], line)
        for text, condition, file, line in rows
    ]
