# SPDX-License-Identifier: Apache-2.0
"""Executed kernel code → source lines → conditions → configuration symbols, with instruction counts."""

from __future__ import annotations

import posixpath
import statistics
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from vmtailor.analysis.cost.plugin_counts import (
    HELPERS,
    KERNEL_MARK,
    START_KERNEL_MARK,
    TESTS,
    SymbolTable,
    initcall_costs,
    periods,
    times_begun,
)
from vmtailor.analysis.ksource.conditions import LineConditions, enabled_blocks, line_conditions
from vmtailor.analysis.ksource.expr import TRUE, Enabled, Expr, asked_for, conjunction
from vmtailor.analysis.ksource.facts import Facts
from vmtailor.analysis.ksource.make_values import Reader
from vmtailor.base.errors import GuestError
from vmtailor.model.boots.boot import Phase
from vmtailor.model.boots.boot_cost import BootCost, CostOfFunction, CostOfInitcall, CostOfSymbol, Helpers
from vmtailor.model.boots.counters import Counters, SourceFrame, SourceFrames, Stretch
from vmtailor.model.evidence import Evidence, EvidenceKind, Strength

#: Function, file and symbol, as in AttributedCost.
Place = tuple[str, str, str]


@dataclass(frozen=True)
class AttributedCost:
    """Instructions executed in one function itself. `file` is a path of the tree; `symbol` is empty for code that is
    always there; `function` is the one in the symbol table, whatever was inlined into it."""

    phase: str
    function: str
    file: str
    symbol: str
    instructions: int


@dataclass(frozen=True)
class SymbolCost:
    """The cost of the code under one configuration symbol in a trace: in all of it, and on the way to init, without
    loops that only emulation causes. `evidence` names the places, the costliest functions first."""

    instructions: int
    evidence: tuple[Evidence, ...] = ()
    to_init_net: int = 0


@dataclass(frozen=True)
class Attribution:
    """`rows` and `remainder` (phase → instructions of code without debug information) add up to `total` (by phase)."""

    rows: tuple[AttributedCost, ...]
    remainder: dict[str, int]
    total: dict[str, int]

    def by_symbol(self, without: Container[str] = ()) -> dict[str, SymbolCost]:
        """Symbol → cost over all phases, with the costliest functions as evidence of strength `ran`. Functions
        named in `without` do not count towards the way to init."""
        sums: dict[str, int] = defaultdict(int)
        net: dict[str, int] = defaultdict(int)
        places: dict[str, dict[tuple[str, str], int]] = defaultdict(lambda: defaultdict(int))
        for row in self.rows:
            if row.symbol:
                sums[row.symbol] += row.instructions
                if row.phase == Phase.KERNEL and row.function.partition(".")[0] not in without:
                    net[row.symbol] += row.instructions
                places[row.symbol][(row.file, row.function)] += row.instructions
        found = {}
        for symbol, total in sums.items():
            best = sorted(places[symbol].items(), key=lambda item: (-item[1], item[0]))[:3]
            evidence = tuple(
                Evidence(
                    kind=EvidenceKind.CODE,
                    key=function,
                    strength=Strength.RAN,
                    where=f"coverage:{function}",
                    count=count,
                    detail=file,
                )
                for (file, function), count in best
            )
            found[symbol] = SymbolCost(total, evidence, net[symbol])
        return found


@dataclass
class Conditions:
    """The condition of any place of a tree."""

    facts: Facts
    read: Reader
    _lines: dict[str, tuple[LineConditions, list[tuple[int, int, Expr]]] | None] = field(default_factory=dict)
    _paths: dict[str, str] = field(default_factory=dict)

    def path(self, noted: str) -> str:
        """Return the path in the tree of a file as the compiler noted it: its longest ending, by folders, that
        exists."""
        if noted not in self._paths:
            parts = posixpath.normpath(noted).strip("/").split("/")
            ends = ("/".join(parts[i:]) for i in range(len(parts)))
            self._paths[noted] = next((e for e in ends if self._known(e)), "")
        return self._paths[noted]

    def _known(self, path: str) -> bool:
        return self._file(path) is not None

    def _file(self, path: str) -> tuple[LineConditions, list[tuple[int, int, Expr]]] | None:
        if path not in self._lines:
            text = self.read(path)
            self._lines[path] = None if text is None else self._conditions(text)
        return self._lines[path]

    def _conditions(self, text: str) -> tuple[LineConditions, list[tuple[int, int, Expr]]]:
        tristates = self.facts.may_be_modules
        return line_conditions(text, tristates), enabled_blocks(text, tristates)

    def at(self, frame: SourceFrame) -> Expr:
        """Return the condition under which the code of a frame is compiled."""
        path = self.path(frame.file)
        found = self._file(path) if path else None
        if found is None:
            return TRUE
        lines, blocks = found
        inside = [condition for first, last, condition in blocks if first <= frame.line <= last]
        return conjunction(self.facts.file_condition(path), lines.at(frame.line), *inside)


def _ran(counters: Counters) -> NDArray[np.uint32]:
    """Return the blocks of the kernel that ran, each once."""
    seen = np.unique(np.concatenate([s.block for s in counters.stretches] or [np.empty(0, np.uint32)]))
    ran: NDArray[np.uint32] = seen[~counters.blocks.early[seen]]
    return ran


def addresses(counters: Counters) -> NDArray[np.uint64]:
    """Return addresses of all kernel instructions that ran: what a symbolizer is asked about."""
    return counters.blocks.addresses(_ran(counters))


def places(
    frames: Mapping[int, SourceFrames],
    conditions: Conditions,
    *,
    enabled: Enabled,
    choosable: Callable[[str], bool],
    always: Container[str] = frozenset(),
    name_of: Callable[[int], str] = lambda address: "",
) -> dict[int, Place]:
    """Return address → what the instruction there belongs to, for all that have frames.

    `enabled`: symbols set in the kernel that ran, with y or m; `choosable`: whether a symbol has a prompt; `always`:
    symbols that every kernel of this architecture has, which no cost is put down to; `name_of`: the function at an
    address by the symbol table, or "", for those whose frames do not name one."""
    place_of = _Placer(conditions, enabled, choosable, always)

    def named(address: int, place: Place) -> Place:
        function, file, symbol = place
        return place if function else (name_of(address) or f"[{posixpath.basename(file)}]", file, symbol)

    return {address: named(address, place_of(stack)) for address, stack in frames.items() if stack}


def attribute(
    counters: Counters,
    where: Mapping[int, Place],
    phase_of: Callable[[Stretch], str] = lambda stretch: stretch.begin,
) -> Attribution:
    """Give every kernel instruction counted to a function, a file and a symbol. `where`: address → place.

    Blocks that ran before the kernel was entered (firmware, decompression) are left out of rows and totals.
    """
    numbers: dict[Place, int] = {}
    shares = _shares(counters, where, numbers)
    counts: dict[tuple[str, int], int] = defaultdict(int)
    remainder: dict[str, int] = defaultdict(int)
    total: dict[str, int] = defaultdict(int)
    for stretch in counters.stretches:
        phase = phase_of(stretch)
        for block, executed in zip(stretch.block.tolist(), stretch.executed.tolist(), strict=True):
            if block not in shares:
                continue
            total[phase] += executed
            for key, part in _split(executed, shares[block]):
                if key < 0:
                    remainder[phase] += part
                else:
                    counts[(phase, key)] += part
    names = list(numbers)
    rows = [AttributedCost(phase, *names[key], count) for (phase, key), count in counts.items() if count]
    return Attribution(
        tuple(sorted(rows, key=lambda r: (r.phase, -r.instructions, r.function))), dict(remainder), dict(total)
    )


class _Placer:
    """Stack of frames → its place; equal ones are one object."""

    def __init__(
        self, conditions: Conditions, enabled: Enabled, choosable: Callable[[str], bool], always: Container[str]
    ) -> None:
        self._places: dict[Place, Place] = {}
        self._conditions = conditions
        self._enabled = enabled
        self._choosable = choosable
        self._always = always
        self._of_stack: dict[int, tuple[SourceFrames, Place]] = {}
        self._at: dict[tuple[str, int], Expr] = {}
        self._symbols: dict[tuple[Expr, ...], str] = {}

    def __call__(self, stack: SourceFrames) -> Place:
        known = self._of_stack.get(id(stack))
        if known is not None:
            return known[1]
        outer = stack[-1]
        asked = dict.fromkeys(self._condition(frame) for frame in reversed(stack))
        asked.pop(TRUE, None)
        symbol = self._symbol(tuple(asked)) if asked else ""
        place = (outer.function, self._conditions.path(outer.file) or outer.file, symbol)
        place = self._places.setdefault(place, place)
        self._of_stack[id(stack)] = (stack, place)  # the stack is kept, so that its id stays its own
        return place

    def _symbol(self, conditions: tuple[Expr, ...]) -> str:
        if conditions not in self._symbols:
            wanted = [s for s in asked_for(conjunction(*conditions), self._enabled) if s not in self._always]
            chosen = [s for s in wanted if self._choosable(s)]
            self._symbols[conditions] = (chosen or wanted or [""])[-1]
        return self._symbols[conditions]

    def _condition(self, frame: SourceFrame) -> Expr:
        place = (frame.file, frame.line)
        if place not in self._at:
            self._at[place] = self._conditions.at(frame)
        return self._at[place]


def _shares(
    counters: Counters, where: Mapping[int, Place], numbers: dict[Place, int]
) -> dict[int, list[tuple[int, int]]]:
    """Block → (number, instructions) in the order of its code, for all that ran but what ran early; -1: unknown. Places
    get their `numbers` as they are met."""
    ran = _ran(counters)
    blocks = counters.blocks
    addresses = iter(blocks.instructions(ran).tolist())
    found: dict[int, list[tuple[int, int]]] = {}
    for block, length in zip(ran.tolist(), blocks.insns[ran].tolist(), strict=True):
        shares: list[tuple[int, int]] = []
        for address in islice(addresses, length):
            place = where.get(address)
            key = numbers.setdefault(place, len(numbers)) if place is not None else -1
            if shares and shares[-1][0] == key:
                shares[-1] = (key, shares[-1][1] + 1)
            else:
                shares.append((key, 1))
        found[block] = shares
    return found


def _split(executed: int, shares: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Divide a block's count among its instructions. What is left over (an execution that an exception cut short) falls
    to the first ones, which is where it ran."""
    if len(shares) == 1:
        return [(shares[0][0], executed)]
    size = sum(n for _, n in shares)
    whole, rest = divmod(executed, size) if size else (0, executed)
    parts = []
    for key, n in shares:
        extra = min(rest, n)
        rest -= extra
        parts.append((key, whole * n + extra))
    return parts or [(-1, executed)]


#: The mark that ends the kernel's way: it is about to execute the first program of user space.
INIT_MARK = "init"
#: The phase's name in an attribution.
TO_INIT = "kernel"
#: Functions named for a symbol, the costliest.
NAMED = 3


def phase_of(stretch: Stretch) -> str:
    """Return the phase of a stretch: from kernel entry to init, or not."""
    return TO_INIT if stretch.begin in (KERNEL_MARK, START_KERNEL_MARK) else ""


def by_table(counters: Counters, table: SymbolTable) -> Attribution:
    """Return instructions on the way to init by function alone, where there is no debug information: files and symbols
    stay empty."""
    costs: dict[str, int] = defaultdict(int)
    for stretch in counters.stretches:
        if phase_of(stretch):
            inside = ~counters.blocks.early[stretch.block]
            index = table.index_of(counters.blocks.vaddr[stretch.block[inside]])
            for place, executed in zip(index.tolist(), stretch.executed[inside].tolist(), strict=True):
                costs[table.names[place] if place >= 0 else ""] += executed
    unknown = costs.pop("", 0)
    rows = tuple(
        AttributedCost(phase=TO_INIT, function=name, file="", symbol="", instructions=count)
        for name, count in costs.items()
    )
    return Attribution(rows, {TO_INIT: unknown}, {TO_INIT: unknown + sum(row.instructions for row in rows)})


def rows_of(release: str, counters: Counters, attribution: Attribution) -> BootCost:
    """Return the cost of a boot that was counted with marks at kernel entry, start_kernel and INIT_MARK. Raises
    GuestError when it never came to the last one."""
    begin, end = counters.at(KERNEL_MARK), counters.at(INIT_MARK)
    if begin is None or end is None:
        raise GuestError("the kernel did not reach init while instructions were counted")
    whole = end.since(begin)
    rows = [row for row in attribution.rows if row.phase == TO_INIT]
    functions = tuple(CostOfFunction(r.function, r.file, r.symbol, r.instructions) for r in _merged(rows))
    return BootCost(
        release=release,
        total=whole.executed,
        before_kernel=begin.executed,
        early=whole.early,
        user=whole.user,
        unknown=attribution.remainder.get(TO_INIT, 0),
        functions=functions,
        symbols=_symbols(functions),
        initcalls=_initcalls(counters, functions, begin.executed, end.executed),
        helpers=_helpers(counters, end.executed),
    )


def _helpers(counters: Counters, end: int) -> Helpers:
    """Return the number of helpers up to `end`, and the usual cost of one. Periods that overlap, or with other work
    beside them, are too long; so the cost is the median."""
    begun = [at.executed for at in times_begun(counters, HELPERS) if at.executed < end]
    tests = [(first.executed, last.executed) for first, last in periods(counters, TESTS)]
    for_tests = sum(any(first <= at < last for first, last in tests) for at in begun)
    each = [last.since(first).executed for first, last in periods(counters, HELPERS) if last.executed <= end]
    return Helpers(len(begun), for_tests, int(statistics.median(each))) if each else Helpers()


def _merged(rows: Iterable[AttributedCost]) -> list[AttributedCost]:
    return sorted(rows, key=lambda r: (-r.instructions, r.function, r.file, r.symbol))


def _symbols(functions: Iterable[CostOfFunction]) -> tuple[CostOfSymbol, ...]:
    total: dict[str, int] = defaultdict(int)
    names: dict[str, list[str]] = defaultdict(list)
    for row in functions:  # what cost most comes first
        if row.symbol:
            total[row.symbol] += row.instructions
            if row.function not in names[row.symbol] and len(names[row.symbol]) < NAMED:
                names[row.symbol].append(row.function)
    ordered = sorted(total.items(), key=lambda item: (-item[1], item[0]))
    return tuple(CostOfSymbol(symbol, count, tuple(names[symbol])) for symbol, count in ordered)


def _initcalls(
    counters: Counters, functions: Iterable[CostOfFunction], begin: int, end: int
) -> tuple[CostOfInitcall, ...]:
    """Return every initcall, what cost most first. Where its function was inlined or shares its name, the one of that
    name that cost most tells the file."""
    places: dict[str, CostOfFunction] = {}
    for row in functions:
        places.setdefault(row.function, row)
    found = []
    for span in initcall_costs(counters):
        at = span.at.executed
        if not begin <= at < end:
            continue
        place = places.get(span.name)
        file, symbol = (place.file, place.symbol) if place else ("", "")
        accesses = span.cost.ports + span.cost.mmio
        found.append(
            CostOfInitcall(
                name=span.name,
                file=file,
                symbol=symbol,
                at=at - begin,
                instructions=span.cost.executed,
                device_accesses=accesses,
            )
        )
    return tuple(sorted(found, key=lambda i: (-i.instructions, i.at)))
