# SPDX-License-Identifier: Apache-2.0
"""The rows of a boot's cost add up to its total."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from vmtailor.analysis.cost.attribution import (
    INIT_MARK,
    TO_INIT,
    AttributedCost,
    Attribution,
    by_table,
    phase_of,
    rows_of,
)
from vmtailor.analysis.cost.plugin_counts import SymbolTable
from vmtailor.base.errors import GuestError
from vmtailor.base.figures import millions
from vmtailor.base.terminal import TerminalConsole
from vmtailor.cli.tables.cost_table import WHOLE, show_cost
from vmtailor.model.boots.boot_cost import Helpers
from vmtailor.model.boots.counters import Blocks, Counters, SpanReached, Stretch, Totals


def stretch(begin: str, end: str, at_end: Totals) -> Stretch:
    none = np.empty(0, np.uint64)
    return Stretch(begin, end, at_end, (), (), none.astype(np.uint32), none, none)


def counters(*stretches: Stretch, spans: tuple[SpanReached, ...] = ()) -> Counters:
    none = np.empty(0, np.uint64)
    small = none.astype(np.uint32)
    ports, lengths = none.astype(np.uint16), none.astype(np.uint8)
    blocks = Blocks(none, small, small, none.astype(bool), ports, small, lengths)
    return Counters(True, True, True, blocks, stretches, spans)


COUNTED = counters(
    stretch("reset", "kernel", Totals(early=500)),
    stretch("kernel", "start_kernel", Totals(early=510, kernel=40)),
    stretch("start_kernel", INIT_MARK, Totals(early=510, kernel=900, user=60, ports=7)),
    stretch(INIT_MARK, "", Totals(early=510, kernel=5000, user=600, ports=9)),
    spans=(
        SpanReached("-", Totals(early=510, kernel=100)),
        SpanReached("inet6_init", Totals(early=510, kernel=110)),
        SpanReached("-", Totals(early=510, kernel=410, ports=3)),
        SpanReached("helpers<", Totals(early=510, kernel=500)),
        SpanReached("helpers>", Totals(early=510, kernel=520, user=20)),
        SpanReached("tests<", Totals(early=510, kernel=600, user=20)),
        SpanReached("helpers<", Totals(early=510, kernel=610, user=20)),
        SpanReached("helpers<", Totals(early=510, kernel=611, user=20)),  # two at once
        SpanReached("helpers>", Totals(early=510, kernel=650, user=40)),
        SpanReached("helpers>", Totals(early=510, kernel=690, user=60)),
        SpanReached("helpers<", Totals(early=510, kernel=700, user=60)),
        SpanReached("helpers>", Totals(early=510, kernel=741, user=60)),
        SpanReached("late", Totals(early=510, kernel=2000, user=60)),
        SpanReached("-", Totals(early=510, kernel=2100, user=60)),
    ),
)
ROWS = (
    AttributedCost(TO_INIT, "fib6_init", "net/ipv6/ip6_fib.c", "IPV6", 250),
    AttributedCost(TO_INIT, "inet6_init", "net/ipv6/af_inet6.c", "IPV6", 40),
    AttributedCost(TO_INIT, "start_kernel", "init/main.c", "", 580),
    AttributedCost("", "later", "x.c", "X", 4100),
)


def test_rows_and_remainder_are_the_total() -> None:
    cost = rows_of("6.12", COUNTED, Attribution(ROWS, {TO_INIT: 30, "": 0}, {TO_INIT: 900}))
    assert cost.before_kernel == 500
    assert cost.total == 970 == sum(f.instructions for f in cost.functions) + cost.early + cost.user + cost.unknown
    assert [(s.symbol, s.instructions, s.functions) for s in cost.symbols] == [
        ("IPV6", 290, ("fib6_init", "inet6_init"))
    ]
    assert [(i.name, i.instructions, i.symbol, i.at, i.device_accesses) for i in cost.initcalls] == [
        ("inet6_init", 300, "IPV6", 120, 3)
    ]


def test_helpers_are_told_from_their_requests_to_their_ends() -> None:
    cost = rows_of("6.12", COUNTED, Attribution(ROWS, {TO_INIT: 30, "": 0}, {TO_INIT: 900}))
    # Alone 40 and 41, two at once 120: the median is that of one. The test under way never ended.
    assert cost.helpers == Helpers(count=4, for_tests=3, each=41)
    text = io.StringIO()
    show_cost(cost, Path("out"), TerminalConsole(file=text, width=200))
    assert f"4 helpers, each {millions(41)} from its request to its end; 3 of them for self-tests" in text.getvalue()
    assert rows_of("6.12", replace(COUNTED, spans=()), Attribution(ROWS, {}, {})).helpers == Helpers()


def test_it_is_said_where_functions_count_as_a_whole() -> None:
    cost = rows_of("6.1", COUNTED, Attribution(ROWS, {}, {}))
    assert not cost.whole_functions
    for one, said in ((cost, False), (replace(cost, whole_functions=True), True)):
        text = io.StringIO()
        show_cost(one, Path("out"), TerminalConsole(file=text, width=200))
        assert (WHOLE in text.getvalue()) is said


def test_without_debug_information_functions_are_told_by_the_table() -> None:
    table = SymbolTable.parse("ffffffff81000000 T a\nffffffff81000100 T b\nffffffff81000200 T end_\n")
    where = np.array([0xFFFFFFFF81000000, 0xFFFFFFFF81000110, 0x1000000, 0xFFFFFFFFC0000000], np.uint64)
    four = np.array([1, 1, 1, 1], np.uint32)
    early = np.array([False, False, True, False])
    blocks = Blocks(where, four, four, early, four.astype(np.uint16), four, np.ones(2, np.uint8))

    def passed(begin: str, end: str, block: list[int], executed: list[int], total: Totals) -> Stretch:
        counts = np.array(executed, np.uint64)
        return Stretch(begin, end, total, (), (), np.array(block, np.uint32), counts, counts)

    found = Counters(
        True, True, True, blocks,
        (passed("reset", "kernel", [2], [7], Totals(early=7)),
         passed("kernel", "start_kernel", [2, 0], [3, 50], Totals(early=10, kernel=50)),
         passed("start_kernel", INIT_MARK, [0, 1, 3], [5, 20, 4], Totals(early=10, kernel=79)),
         passed(INIT_MARK, "", [1], [1000], Totals(early=10, kernel=1079))),
        (),
    )  # fmt: skip
    cost = rows_of("6.12", found, by_table(found, table))
    assert {f.function: (f.file, f.symbol, f.instructions) for f in cost.functions} == {
        "a": ("", "", 55),
        "b": ("", "", 20),
    }
    assert cost.total == 82 == 75 + cost.early + cost.unknown and cost.unknown == 4


def test_phases_are_told_by_the_marks() -> None:
    assert [phase_of(s) for s in COUNTED.stretches] == ["", TO_INIT, TO_INIT, ""]


def test_a_kernel_that_never_came_to_init() -> None:
    with pytest.raises(GuestError):
        rows_of("6.12", counters(stretch("reset", "kernel", Totals(early=500))), Attribution((), {}, {}))
