# SPDX-License-Identifier: Apache-2.0
"""The functions of a kernel as the plugin that follows calls wants them, and the names of system calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources

from vmtailor.analysis.cost.plugin_counts import UNKNOWN, SymbolTable
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import toml_files
from vmtailor.model.architecture import Architecture
from vmtailor.model.call_code import CallCode, FollowedCode, FollowedFunction, FunctionFlags

#: The most nodes that a tree of calls has: a boot and a load of lighttpd take some 70,000.
MOST_NODES = 1 << 21
_FILE = resources.files("vmtailor") / "data" / "calls" / "objects.toml"


@dataclass(frozen=True)
class CallObject:
    """A kind of thing that calls are made on, known by the functions that it is worked on with."""

    id: str
    title: str
    functions: tuple[str, ...]


@dataclass(frozen=True)
class CallObjects:
    """All kinds of things that calls are made on, and the functions of deferred work."""

    deferred: tuple[str, ...]
    object: tuple[CallObject, ...]


@cache
def objects() -> CallObjects:
    """Return data/calls/objects.toml. Raises UserInputError when it is wrong."""
    return toml_files.read_strictly(_FILE.read_text("utf-8"), CallObjects, _FILE.name)


def require(architecture: Architecture) -> CallCode:
    """Return how the calls of a kernel look. Raises UserInputError for a processor whose calls cannot be followed."""
    if architecture.following is None:
        raise UserInputError(
            f"the calls of a kernel for {architecture.title} cannot be followed", hint="vmtailor trace --show coverage"
        )
    return architecture.following


class Names:
    """Names of functions, some with a `*` at the end that stands for any rest → a value for each."""

    def __init__(self, rows: Iterable[tuple[str, int]]) -> None:
        self._exact: dict[str, int] = {}
        self._begins: dict[str, int] = {}
        for name, value in rows:
            known = self._begins if name.endswith("*") else self._exact
            known.setdefault(name.removesuffix("*"), value)
        self._lengths = sorted({len(name) for name in self._begins}, reverse=True)

    def of(self, name: str) -> int | None:
        """Return the value of a name: of the longest that fits. None where none does."""
        if name in self._exact:
            return self._exact[name]
        return next((self._begins[name[:n]] for n in self._lengths if name[:n] in self._begins), None)


def of_table(table: SymbolTable, code: CallCode, most_nodes: int = MOST_NODES) -> FollowedCode:
    """Return the functions of a kernel, with what is special of each. Several names for one address have what any of
    them has."""
    flags = [
        (flag, Names((name, 1) for name in names))
        for flag, names in (
            (FunctionFlags.CALL, code.calls),
            (FunctionFlags.THUNK, code.thunks),
            (FunctionFlags.INTERRUPT, code.interrupts),
            (FunctionFlags.EXCEPTION, code.exceptions),
            (FunctionFlags.SOFT, objects().deferred),
            (FunctionFlags.THREAD, code.threads),
            (FunctionFlags.STUBS, code.stubs),
        )
    ]
    methods = Names((name, i) for i, one in enumerate(objects().object) for name in one.functions)
    found: dict[int, FunctionFlags] = {}
    on: dict[int, int] = {}
    for address, whole in table.everywhere:
        name = whole.partition(" ")[0]  # a module's name stands behind
        for flag, names in flags:
            if names.of(name) is not None:
                found[address] = found.get(address, FunctionFlags.NONE) | flag
        number = methods.of(name)
        if number is not None:
            on.setdefault(address, number)
    functions = tuple(
        FollowedFunction(at, found.get(at, FunctionFlags.NONE), on.get(at, -1)) for at in table.starts.tolist()
    )
    return FollowedCode(functions, most_nodes, table.image_map)


def call_name(function: str, code: CallCode) -> str:
    """Return the name of the system call that a function does, as programs know it; the function's own where it does
    none."""
    begins: Iterator[str] = (name.removesuffix("*") for name in code.calls)
    begin = next((one for one in begins if function.startswith(one)), None)
    if begin is None:
        return function
    name = function.removeprefix(begin)
    return code.names.get(name, name)


def with_modules(table: SymbolTable, functions: Iterable[tuple[int, str]], ends: Iterable[int]) -> SymbolTable:
    """Return a kernel's table with the functions of loaded modules. `ends`: addresses behind which no module's code
    lies. Code of no known function is UNKNOWN's."""
    known = {int(at) for at in table.starts[:-1]}
    image = [(at, name, at in known) for at, name in table.everywhere]
    behind = table.addresses.get("_end")
    gaps = [(at, UNKNOWN, True) for at in (*ends, *((behind,) if behind is not None else ()))]
    return SymbolTable.of([*image, *((at, name, True) for at, name in functions), *gaps], table.architecture)
