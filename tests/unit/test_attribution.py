# SPDX-License-Identifier: Apache-2.0
"""Executed code to symbols: every instruction in one row, inlined code under its own condition, nothing lost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.kernel_tree import SOURCE, read_facts

from vmtailor.analysis.cost.attribution import Attribution, Conditions, addresses, attribute, places
from vmtailor.analysis.ksource import facts as ksource_facts
from vmtailor.drivers.kernel.symbolizer import parse_addr2line, parse_llvm
from vmtailor.model.boots.counters import Blocks, Counters, SourceFrame, SourceFrames, Stretch, Totals
from vmtailor.model.evidence import Strength

FACTS = read_facts()
BUILD = "debian/build/x/"
EPOLL = SourceFrame("do_epoll", BUILD + "fs/eventpoll.c", 2)
OPEN = SourceFrame("do_open", "/build/linux/fs/open.c", 3)
HOOK = SourceFrame("unix_hook", BUILD + "include/linux/inline.h", 4)
NO_HOOK = SourceFrame("unix_hook", BUILD + "include/linux/inline.h", 9)
SETUID = SourceFrame("__x64_sys_setuid", BUILD + "kernel/sys.c", 3)
ALL = frozenset({"EPOLL", "NET", "UNIX", "MULTIUSER", "FUTEX"})


def counters(*blocks: tuple[int, int, tuple[tuple[str, int], ...]], early: frozenset[int] = frozenset()) -> Counters:
    """Blocks as (address, instructions of 4 bytes, ((phase, executed), …)); the n-th is early when n is in `early`."""
    insns = np.array([n for _, n, _ in blocks], np.uint32)
    starts = np.cumsum(insns) - insns
    table = Blocks(
        vaddr=np.array([a for a, _, _ in blocks], np.uint64),
        insns=insns,
        size=insns * 4,
        early=np.array([i in early for i in range(len(blocks))], np.bool_),
        ports=np.zeros(len(blocks), np.uint16),
        lengths_at=starts.astype(np.uint32),
        lengths=np.full(int(insns.sum()), 4, np.uint8),
    )
    phases = list(dict.fromkeys(p for _, _, runs in blocks for p, _ in runs))
    stretches = []
    for phase in phases:
        rows = [(i, count) for i, (_, _, runs) in enumerate(blocks) for p, count in runs if p == phase]
        number = np.array([i for i, _ in rows], np.uint32)
        executed = np.array([c for _, c in rows], np.uint64)
        stretches.append(Stretch(phase, "", Totals(), (), (), number, executed, executed))
    return Counters(exact=True, complete=True, devices=False, blocks=table, stretches=tuple(stretches), spans=())


def run(counts: Counters, frames: dict[int, SourceFrames], always: frozenset[str] = frozenset()) -> Attribution:
    conditions = Conditions(FACTS, ksource_facts.reader(SOURCE))
    where = places(frames, conditions, enabled=ALL, choosable=lambda name: name != "NET", always=always)
    return attribute(counts, where)


def table(found: Attribution) -> set[tuple[str, str, str, str, int]]:
    return {(r.phase, r.function, r.file, r.symbol, r.instructions) for r in found.rows}


def test_a_block_of_one_function() -> None:
    found = run(counters((100, 2, (("boot", 20), ("load", 6)))), {100: (EPOLL,), 104: (EPOLL,)})
    assert table(found) == {
        ("boot", "do_epoll", "fs/eventpoll.c", "EPOLL", 20), ("load", "do_epoll", "fs/eventpoll.c", "EPOLL", 6),
    }  # fmt: skip
    assert found.remainder == {} and found.total == {"boot": 20, "load": 6}


def test_inlined_code_has_its_own_condition() -> None:
    frames = {100: (OPEN,), 104: (HOOK, OPEN), 108: (NO_HOOK, OPEN)}
    found = run(counters((100, 3, (("boot", 30),))), frames)
    # The #else branch asks for nothing; what stands in the function itself is always there.
    assert table(found) == {("boot", "do_open", "fs/open.c", "UNIX", 10), ("boot", "do_open", "fs/open.c", "", 20)}


def test_the_condition_of_the_lines_counts() -> None:
    found = run(counters((100, 1, (("boot", 1),))), {100: (SETUID,)})
    assert [r.symbol for r in found.rows] == ["MULTIUSER"]


def test_what_no_one_knows_is_the_remainder() -> None:
    found = run(counters((100, 2, (("boot", 9),))), {100: (EPOLL,)})
    assert found.remainder == {"boot": 4} and [r.instructions for r in found.rows] == [5]


def test_a_file_outside_the_tree_keeps_its_name() -> None:
    found = run(counters((100, 1, (("boot", 1),))), {100: (SourceFrame("stub", "generated/stub.c", 1),)})
    assert table(found) == {("boot", "stub", "generated/stub.c", "", 1)}


def test_code_before_the_kernel_is_left_out() -> None:
    counts = counters((100, 1, (("reset", 5),)), (200, 1, (("reset", 7),)), early=frozenset({0}))
    found = run(counts, {200: (EPOLL,)})
    assert found.total == {"reset": 7} and addresses(counts).tolist() == [200]


def test_what_every_kernel_has_costs_nobody() -> None:
    counts = counters((100, 1, (("boot", 1),)))
    assert run(counts, {100: (EPOLL,)}, always=frozenset({"EPOLL"})).rows[0].symbol == ""


def test_paths_are_joined_by_whole_folders() -> None:
    conditions = Conditions(FACTS, ksource_facts.reader(SOURCE))
    assert conditions.path("/build/linux/./fs/../fs/open.c") == "fs/open.c"
    assert conditions.path("/x/notfs/open.c") == ""
    assert conditions.path("xfs/open.c") == ""


def test_costs_of_symbols_say_where() -> None:
    counts = counters((100, 1, (("boot", 5),)), (200, 1, (("boot", 2), ("load", 4))))
    found = run(counts, {100: (EPOLL,), 200: (HOOK, OPEN)}).by_symbol()
    assert found["EPOLL"].instructions == 5 and found["UNIX"].instructions == 6
    evidence = found["UNIX"].evidence[0]
    assert evidence.strength is Strength.RAN and evidence.key == "do_open" and evidence.count == 6


@given(
    st.lists(
        st.tuples(
            st.integers(1, 6), st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 1000)), max_size=3)
        ),
        max_size=6,
    ),
    st.sampled_from([(EPOLL,), (HOOK, OPEN), (SETUID,)]),
    st.integers(1, 5),
)
def test_the_rows_and_the_remainder_are_the_total(
    blocks: list[tuple[int, list[tuple[str, int]]]], stack: SourceFrames, every: int
) -> None:
    counts = counters(*((1000 * i, n, tuple(dict(runs).items())) for i, (n, runs) in enumerate(blocks)))
    known = {a: stack for a in addresses(counts).tolist() if a // 4 % every == 0}
    found = run(counts, known)
    for phase in found.total:
        attributed = sum(r.instructions for r in found.rows if r.phase == phase)
        assert attributed + found.remainder.get(phase, 0) == found.total[phase]


# ---- what symbolizers print

LLVM = "inner\nfs/a.c:10:3\nouter\nfs/b.c:20:1\n\n??\n??:0:0\n\nlone\n/x/y:z.c:7:0\n\n"
ADDR2LINE = (
    "0x0000000000000010\ninner\nfs/a.c:10 (discriminator 3)\nouter\nfs/b.c:20\n0x20\n??\n??:0\n0x30\nlone\n/x/y:z.c:7\n"
)


def test_both_tools_say_the_same() -> None:
    expected = [
        (SourceFrame("inner", "fs/a.c", 10), SourceFrame("outer", "fs/b.c", 20)),
        (),
        (SourceFrame("lone", "/x/y:z.c", 7),),
    ]
    assert parse_llvm(LLVM) == expected
    assert parse_addr2line(ADDR2LINE) == list(zip([0x10, 0x20, 0x30], expected, strict=True))


def test_a_mark_of_the_assemblers_is_no_function() -> None:
    """On riscv64 each stretch of assembler code begins with one, which addr2line takes for its name."""
    text = "0x10\n$xrv64i2p1_m2p0\n/build/arch/riscv/lib/memset.S:20\n"
    assert parse_addr2line(text) == [(0x10, (SourceFrame("", "/build/arch/riscv/lib/memset.S", 20),))]


def test_a_function_without_a_name_has_that_of_the_symbol_table_or_its_file() -> None:
    frame = SourceFrame("", "/build/linux/fs/open.c", 3)
    conditions = Conditions(FACTS, ksource_facts.reader(SOURCE))
    names = {100: "memset"}
    found = places(
        {100: (frame,), 104: (frame,), 108: (OPEN,)}, conditions, enabled=ALL, choosable=lambda name: True,
        name_of=lambda address: names.get(address, ""),
    )  # fmt: skip
    assert [found[at][0] for at in (100, 104, 108)] == ["memset", "[open.c]", "do_open"]


@pytest.mark.parametrize("read", [parse_llvm, parse_addr2line])
@given(text=st.text(alphabet="0x1f?:a/.\n ()", max_size=200))
def test_any_output_can_be_read(read: type, text: str) -> None:
    read(text)
