# SPDX-License-Identifier: Apache-2.0
"""The rows of a boot's cost: attributed instructions and passages of initcalls → functions, symbols, initcalls.
Pure."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable

from vmtailor.analysis.cost.attribution import AttributedCost, Attribution
from vmtailor.analysis.cost.counters import (
    HELPERS,
    KERNEL_MARK,
    START_KERNEL_MARK,
    TESTS,
    SymbolTable,
    initcall_costs,
    periods,
    times_begun,
)
from vmtailor.base.errors import GuestError
from vmtailor.model.boots.boot_cost import BootCost, CostOfFunction, CostOfInitcall, CostOfSymbol, Helpers
from vmtailor.model.boots.counters import Counters, Stretch

#: The mark that ends the kernel's way: it is about to execute the first program of user space.
INIT_MARK = "init"
#: The phase's name in an attribution.
TO_INIT = "kernel"
#: So many functions, those that cost most, are named for a symbol.
NAMED = 3


def phase_of(stretch: Stretch) -> str:
    """The phase of a stretch: from kernel entry to init, or not."""
    return TO_INIT if stretch.begin in (KERNEL_MARK, START_KERNEL_MARK) else ""


def by_table(counters: Counters, table: SymbolTable) -> Attribution:
    """Instructions on the way to init by function alone, where there is no debug information: files and symbols stay
    empty."""
    costs: dict[str, int] = defaultdict(int)
    for stretch in counters.stretches:
        if phase_of(stretch):
            inside = ~counters.blocks.early[stretch.block]
            index = table.index_of(counters.blocks.vaddr[stretch.block[inside]])
            for place, executed in zip(index.tolist(), stretch.executed[inside].tolist(), strict=True):
                costs[table.names[place] if place >= 0 else ""] += executed
    unknown = costs.pop("", 0)
    rows = tuple(AttributedCost(TO_INIT, name, "", "", count) for name, count in costs.items())
    return Attribution(rows, {TO_INIT: unknown}, {TO_INIT: unknown + sum(row.instructions for row in rows)})


def rows_of(release: str, counters: Counters, attribution: Attribution) -> BootCost:
    """The cost of a boot that was counted with marks at kernel entry, start_kernel and INIT_MARK. Raises GuestError
    when it never came to the last one."""
    begin, end = counters.at(KERNEL_MARK), counters.at(INIT_MARK)
    if begin is None or end is None:
        raise GuestError("the kernel did not come as far as init while instructions were counted")
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
    """What helpers cost up to `end`. Where several overlap, or others work beside them, their periods tell too much:
    of one it is the median."""
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
    """Every initcall, what cost most first. Where its function was inlined or shares its name, the one of
    that name that cost most tells the file."""
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
        found.append(CostOfInitcall(span.name, file, symbol, at - begin, span.cost.executed, accesses))
    return tuple(sorted(found, key=lambda i: (-i.instructions, i.at)))
