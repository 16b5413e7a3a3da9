# SPDX-License-Identifier: Apache-2.0
"""Kconfig of a kernel tree: kconfiglib, extended for kernels since 2021, resolved as `make allnoconfig` resolves."""

from __future__ import annotations

import contextlib
import io
import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kconfiglib as k

from vmtailor.analysis.ksource import kconfig_record
from vmtailor.analysis.ksource.make_values import Kind, KindOf, Reader
from vmtailor.base import near_names
from vmtailor.base.errors import BuildError, UserInputError

#: Runs one command of a Kconfig `$(shell,…)` macro and returns its output (drivers/kernel/kconfig_shell.py).
Shell = Callable[[str], str]

_MODULES = re.compile(r"^([ \t]+)modules[ \t]*$", re.M)
_TRANSITIONAL = re.compile(r"^[ \t]+transitional[ \t]*$", re.M)
_DEPENDENCY = re.compile(r"^([ \t]++depends[ \t]++on[ \t]++)([^\n#]+)$", re.M)
_IF = re.compile(r"(?<![ \t])[ \t]+if[ \t]+(?=.)")


def modernise(text: str) -> str:
    """Rewrite newer statements of one Kconfig file, line by line, to their meaning in older ones."""
    text = _MODULES.sub(r"\1option modules", text)
    text = _TRANSITIONAL.sub("", text)
    return _DEPENDENCY.sub(_without_if, text)


def _without_if(dependency: re.Match[str]) -> str:
    """Return `depends on A if B` as `depends on (A) || !(B)`, and any other dependency as it stands."""
    symbols, *conditions = _IF.split(dependency[2], maxsplit=1)
    return f"{dependency[1]}({symbols}) || !({conditions[0]})" if conditions else dependency[0]


@contextlib.contextmanager
def _environment(env: Mapping[str, str]) -> Iterator[None]:
    """kconfiglib reads `$(VAR)` from os.environ: for the time of parsing, it sees `env` and nothing else."""
    saved = dict(os.environ)
    os.environ.clear()
    os.environ.update(env)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(saved)


class _Parser(k.Kconfig):  # type: ignore[misc]
    """kconfiglib's Kconfig with a given shell, and with today's syntax."""

    def __init__(self, env: Mapping[str, str], shell: Shell) -> None:
        self._given_shell = shell
        with _environment(env):
            super().__init__("Kconfig", warn=False, warn_to_stderr=False)

    @classmethod
    def restored(cls, data: bytes) -> _Parser:
        """Return what was parsed before, from its bytes. Raises msgspec.DecodeError or IndexError."""
        tree = cls.__new__(cls)
        tree.warn = tree.warn_to_stderr = tree._warn_assign_no_prompt = False
        kconfig_record.read_into(tree, data)
        return tree

    # kconfiglib keeps its preprocessor functions in a slot that it fills before it parses: the one place to step in.
    @property
    def _functions(self) -> dict[str, Any]:
        return self._table

    @_functions.setter
    def _functions(self, table: dict[str, Any]) -> None:
        self._table = {**table, "shell": (lambda _kconf, _name, command: self._given_shell(command), 1, 1)}

    def _open(self, filename: str, mode: str) -> Any:
        if mode != "r":
            return super()._open(filename, mode)
        return io.StringIO(modernise(Path(filename).read_text(encoding="utf-8", errors="replace")))


def unknown_symbol(name: str, known: Iterable[str], what: str = "this kernel has") -> UserInputError:
    """Return the error for a symbol that a kernel does not have, with the name that was meant."""
    return UserInputError(
        f"{what} no configuration symbol {name[:80]}",
        hint=near_names.asked(name, known) or "vmtailor explain finds the symbol of a call, a path or an error",
    )


@dataclass(frozen=True)
class Lost:
    """A symbol that did not get the value asked for. `expression` is the dependency that lost it, `blocking` the
    symbols in it whose values are to blame."""

    name: str
    wanted: str
    got: str
    expression: str
    blocking: tuple[str, ...]

    def __str__(self) -> str:
        blame = f" (look at {', '.join(self.blocking)})" if self.blocking else ""
        return f"{self.name}: asked for {self.wanted}, got {self.got or 'n'}: {self.expression}{blame}"


@dataclass(frozen=True)
class Resolution:
    """The result of a fragment over allnoconfig. `values` has every symbol that is not n (and not an empty string)."""

    values: dict[str, str]
    prompted: frozenset[str]
    lost: tuple[Lost, ...]

    @property
    def enabled(self) -> frozenset[str]:
        """Return symbols that are y or m."""
        return frozenset(n for n, v in self.values.items() if v in ("y", "m"))

    @property
    def prompted_y(self) -> int:
        return len(self.enabled & self.prompted)

    @property
    def total_y(self) -> int:
        return len(self.enabled)


class Kconfig:
    """The symbols of one tree. Not safe for threads: resolving changes values inside."""

    def __init__(self, env: Mapping[str, str], shell: Shell) -> None:
        """`env` is what make exports to Kconfig: srctree, ARCH, SRCARCH, CC, LD, KERNELVERSION and so on.

        Raises BuildError when the tree's Kconfig files cannot be read.
        """
        try:
            self._stand_on(_Parser(env, shell))
        except (k.KconfigError, OSError) as error:
            raise BuildError(
                f"the Kconfig files of {env.get('srctree', '?')} cannot be read", details=str(error),
                hint="is it a complete kernel source tree, with a compiler installed?",
            ) from error  # fmt: skip

    @classmethod
    def restored(cls, data: bytes) -> Kconfig:
        """Return the symbols that `to_bytes` wrote; nothing is parsed. Raises msgspec.DecodeError or IndexError."""
        found = cls.__new__(cls)
        found._stand_on(_Parser.restored(data))
        return found

    def to_bytes(self) -> bytes:
        """Return all that values depend on as bytes, for `restored`."""
        return kconfig_record.to_bytes(self.tree)

    def _stand_on(self, tree: _Parser) -> None:
        self.tree = tree
        self.symbols: dict[str, Any] = {s.name: s for s in self.tree.unique_defined_syms}
        self._prompted = frozenset(n for n, s in self.symbols.items() if any(node.prompt for node in s.nodes))
        # conf.c answers these for allnoconfig: every bool and tristate with a prompt, except members of choices.
        self._said_no = {
            s for n, s in self.symbols.items() if n in self._prompted and self.is_switch(n) and not s.choice
        }
        self._applied: list[Any] = []
        for symbol in self._said_no:
            symbol.set_value(0)

    # ---- questions about one symbol

    def known(self, name: str) -> bool:
        return name in self.symbols

    def prompted(self, name: str) -> bool:
        """Return whether the symbol has a prompt somewhere, visible or not: only such a symbol can be chosen."""
        return name in self._prompted

    def is_switch(self, name: str) -> bool:
        """Return whether the symbol is a bool or tristate."""
        return name in self.symbols and self.symbols[name].orig_type in _TRISTATES

    def dependency(self, name: str) -> str:
        """Return the dependencies of a symbol, as text."""
        return str(k.expr_str(self.symbols[name].direct_dep))

    def depends_on(self, name: str) -> tuple[str, ...]:
        """Return symbols that occur in the dependencies of a symbol."""
        return tuple(sorted(symbols_in(self.symbols[name].direct_dep)))

    def selectors(self, name: str) -> tuple[str, ...]:
        """Return symbols that select this one, under whatever condition."""
        return tuple(sorted({_head(term).name for term in terms(self.symbols[name].rev_dep, k.OR) if _head(term)}))

    def prompt(self, name: str) -> str:
        """Return the text of the first prompt, or an empty string."""
        return next((str(n.prompt[0]) for n in self.symbols[name].nodes if n.prompt), "") if self.known(name) else ""

    def places(self, name: str) -> tuple[str, ...]:
        """Return the places that define the symbol: file:line."""
        return tuple(f"{n.filename}:{n.linenr}" for n in self.symbols[name].nodes)

    # ---- resolving

    def apply(self, fragment: Iterable[tuple[str, str]]) -> None:
        """Make the tree stand as `make allnoconfig KCONFIG_ALLCONFIG=fragment` would. Unknown names are passed over."""
        for symbol in self._applied:
            symbol.unset_value()
            if symbol.choice is not None:
                symbol.choice.unset_value()
            elif symbol in self._said_no:
                symbol.set_value(0)
        self._applied = []
        for name, value in fragment:
            symbol = self.symbols.get(name)
            if symbol is not None:
                symbol.set_value(value)
                self._applied.append(symbol)

    def apply_over_defaults(self, fragment: Iterable[tuple[str, str]]) -> None:
        """Make the tree stand as `make olddefconfig` would with the fragment as its configuration: what that does not
        mention has its default."""
        self.apply(())
        for symbol in self._said_no:
            symbol.unset_value()
        self._applied = list(self._said_no)
        for name, value in fragment:
            symbol = self.symbols.get(name)
            if symbol is not None:
                symbol.set_value(value)
                self._applied.append(symbol)

    def unmet(self, values: Mapping[str, str]) -> dict[str, str]:
        """Return the switches of a whole configuration that kconfig would drop, each with what it depends on: that is
        not set there, and nothing selects the switch."""
        return _Standing(self, values).unmet()

    def value(self, name: str) -> str:
        """Return the value under the fragment applied last; `n` for an unknown symbol."""
        symbol = self.symbols.get(name)
        return "n" if symbol is None else str(symbol.str_value)

    def resolve(self, fragment: Iterable[tuple[str, str]]) -> Resolution:
        """Apply a fragment and read everything back, with what it lost."""
        wanted = list(fragment)
        self.apply(wanted)
        return self._resolution(wanted)

    def resolve_over_defaults(self, fragment: Iterable[tuple[str, str]]) -> Resolution:
        """Resolve a fragment as `make olddefconfig` does."""
        wanted = list(fragment)
        self.apply_over_defaults(wanted)
        return self._resolution(wanted)

    def _resolution(self, wanted: Sequence[tuple[str, str]]) -> Resolution:
        values = {}
        for name, symbol in self.symbols.items():
            value = symbol.str_value
            if value not in ("n", "") and symbol.orig_type != k.UNKNOWN:
                values[name] = value
        return Resolution(values, self._prompted, self._all_lost(wanted))

    def lost(self, fragment: Iterable[tuple[str, str]]) -> tuple[Lost, ...]:
        """Apply a fragment and return what it lost: `resolve` without reading every symbol back."""
        wanted = list(fragment)
        self.apply(wanted)
        return self._all_lost(wanted)

    def _all_lost(self, wanted: Sequence[tuple[str, str]]) -> tuple[Lost, ...]:
        return tuple(self._lost(name, value) for name, value in wanted if not self._got(name, value))

    def _got(self, name: str, value: str) -> bool:
        symbol = self.symbols.get(name)
        if symbol is None:
            return value == "n"
        if symbol.orig_type is k.HEX:
            try:
                return int(symbol.str_value or "0", 16) == int(value, 16)
            except ValueError:  # a user wrote y for a number
                return False
        return bool(symbol.str_value == value)

    def _lost(self, name: str, wanted: str) -> Lost:
        symbol = self.symbols.get(name)
        if symbol is None:
            return Lost(name=name, wanted=wanted, got="", expression="this tree has no such symbol", blocking=())
        got = symbol.str_value
        if wanted == "n":
            who = [t for t in terms(symbol.rev_dep, k.OR) if k.expr_value(t) > 0]
            text = " || ".join(k.expr_str(t) for t in who)
            blame = tuple(sorted({_head(t).name for t in who if _head(t)}))
            return Lost(
                name=name,
                wanted=wanted,
                got=got,
                expression=f"selected by {text}" if who else "it cannot be switched off",
                blocking=blame,
            )
        blocking = tuple(sorted(blockers(symbol.direct_dep)))
        if k.expr_value(symbol.direct_dep) == 0:
            return Lost(
                name=name,
                wanted=wanted,
                got=got,
                expression=f"depends on {k.expr_str(symbol.direct_dep)}",
                blocking=blocking,
            )
        if name not in self._prompted:
            return Lost(
                name=name,
                wanted=wanted,
                got=got,
                expression="it has no prompt: only another symbol can select it",
                blocking=self.selectors(name),
            )
        if symbol.choice is not None:
            chosen = symbol.choice.selection
            other = (chosen.name,) if chosen is not None else ()
            return Lost(
                name=name, wanted=wanted, got=got, expression="another member of its choice is selected", blocking=other
            )
        conditions = [n.prompt[1] for n in symbol.nodes if n.prompt]
        text = " || ".join(k.expr_str(c) for c in conditions)
        return Lost(
            name=name,
            wanted=wanted,
            got=got,
            expression=f"its prompt is visible only if {text}",
            blocking=tuple(sorted(set().union(*map(blockers, conditions)))),
        )


class _Standing:
    """The switches of a configuration that stand by its own values alone: no default and no compiler is asked."""

    def __init__(self, kconfig: Kconfig, values: Mapping[str, str]) -> None:
        self._kconfig = kconfig
        self._given = values
        self._level: dict[str, int] = {}

    def unmet(self) -> dict[str, str]:
        on = [name for name, value in self._given.items() if value in ("y", "m") and self._kconfig.known(name)]
        return {name: self._kconfig.dependency(name) for name in on if not self._of(name)}

    def _of(self, name: str) -> int:
        """Return 2 for y, 1 for m, 0 for what is not set, or is set and dropped."""
        given = {"y": 2, "m": 1}.get(self._given.get(name, ""), 0)
        symbol = self._kconfig.symbols.get(name)
        if not given or symbol is None or not self._kconfig.prompted(name) or symbol.choice is not None:
            return given
        if name not in self._level:
            self._level[name] = given  # in a circle it stands
            stands = self._value(symbol.direct_dep) or self._value(symbol.rev_dep)
            self._level[name] = given if stands else 0
        return self._level[name]

    def _value(self, expression: Any) -> int:
        if isinstance(expression, tuple):
            operator, *operands = expression
            if operator in (k.AND, k.OR):
                values = (self._value(operand) for operand in operands)
                return min(values) if operator == k.AND else max(values)
            if operator == k.NOT:
                return 2 - self._value(operands[0])
            return self._relation(operator, *operands)
        if not isinstance(expression, k.Symbol):  # a choice
            return 2
        if expression.is_constant:
            return {"n": 0, "m": 1}.get(expression.name, 2)
        return self._of(expression.name)

    def _relation(self, operator: int, left: Any, right: Any) -> int:
        """Comparisons of switches are looked at; of numbers and texts, which compilers decide, each is met."""
        if operator not in (k.EQUAL, k.UNEQUAL) or not self._kconfig.is_switch(left.name):
            return 2
        same = self._of(left.name) == self._value(right)
        return 2 if same == (operator == k.EQUAL) else 0


_TRISTATES = (k.BOOL, k.TRISTATE)
# ---- expressions of kconfiglib: nested tuples (operator, operand, operand), symbols, choices


def terms(expression: Any, operator: int) -> list[Any]:
    """Return the operands of a chain of one operator: `A || B || C` → [A, B, C]; anything else is its only term."""
    if isinstance(expression, tuple) and expression[0] == operator:
        return terms(expression[1], operator) + terms(expression[2], operator)
    return [expression]


def symbols_in(expression: Any) -> set[str]:
    """Return names of the symbols that occur in an expression, constants left out."""
    if isinstance(expression, tuple):
        return set().union(*(symbols_in(e) for e in expression[1:]))
    if isinstance(expression, k.Symbol) and not expression.is_constant:
        return {expression.name}
    return set()


def blockers(expression: Any) -> set[str]:
    """Return symbols to blame that an expression is n: of a conjunction, those of its operands that are n."""
    if k.expr_value(expression) > 0:
        return set()
    if isinstance(expression, tuple) and expression[0] in (k.AND, k.OR):
        return blockers(expression[1]) | blockers(expression[2])
    return symbols_in(expression)


def _head(term: Any) -> Any:
    """Return the selecting symbol of one term of a reverse dependency (`SELECTOR && CONDITION`)."""
    first = terms(term, k.AND)[0]
    return first if isinstance(first, k.Symbol) and not first.is_constant else None


_LINE = re.compile(
    r"^[ \t]*(?:(?:menu)?config[ \t]+(?P<name>\w+)[ \t]*(?:#.*)?$"
    r"|(?P<kind>bool|tristate|def_bool|def_tristate|int|hex|string)\b"
    r"|source[ \t]+[\"']?(?P<source>[^\"'\s]+))",
    re.M,
)
_KINDS = {"bool": Kind.BOOL, "def_bool": Kind.BOOL, "tristate": Kind.TRISTATE, "def_tristate": Kind.TRISTATE}


def kinds(read: Reader, arch: str) -> dict[str, Kind]:
    """Symbol → kind, for all symbols that the tree's Kconfig files define. Empty for a tree without them."""
    found: dict[str, Kind] = {}
    pending, seen = ["Kconfig"], {"Kconfig"}
    while pending:
        name = ""
        for match in _LINE.finditer(read(pending.pop()) or ""):
            if match["name"]:
                name = match["name"]
            elif match["kind"] and name:
                kind = _KINDS.get(match["kind"], Kind.OTHER)
                if found.get(name) is not Kind.TRISTATE:
                    found[name] = kind
                name = ""
            elif match["source"]:
                path = posixpath.normpath(match["source"].replace("$(SRCARCH)", arch).replace("$SRCARCH", arch))
                if path not in seen:
                    seen.add(path)
                    pending.append(path)
    return found


def kind_of(known: dict[str, Kind]) -> KindOf:
    """Return the kind of a symbol. One that no file defines is never m; without any files, every symbol may be."""
    otherwise = Kind.BOOL if known else Kind.TRISTATE
    return lambda name: known.get(name, otherwise)


def tristates(read: Reader, arch: str) -> frozenset[str] | None:
    """Return the symbols that may be m; None for a tree without Kconfig files."""
    known = kinds(read, arch)
    return frozenset(name for name, kind in known.items() if kind is Kind.TRISTATE) if known else None
