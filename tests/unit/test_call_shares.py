# SPDX-License-Identifier: Apache-2.0
"""Followed calls: their file, their costs by call, the trees, and the formats of others."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.analysis.calls import call_rows, call_targets, followed_code, request_split, stack_formats
from vmtailor.analysis.calls.call_shares import CallCost, During, FollowedBoot
from vmtailor.analysis.cost.plugin_counts import SymbolTable
from vmtailor.base.errors import UserInputError, VmtailorError
from vmtailor.drivers.monitors import calls_file
from vmtailor.model.architecture import every, named
from vmtailor.model.boots.call_graph import WorkKind
from vmtailor.model.call_code import CallCode, FunctionFlags
from vmtailor.model.syscalls import SyscallEvent
from vmtailor.stages.report import call_page

NAMES = ("entry", "__x64_sys_read", "pipe_read", "sock_read_iter", "asm_sysvec_x", "memcpy")
PIPE = [one.id for one in followed_code.objects().object].index("pipe")
#: Parent and function of the nodes behind the four roots.
NODES = ((0, 0), (4, 1), (5, 2), (5, 3), (1, 4), (6, 5))
#: Node, place of the purpose, own instructions, times entered.
FIGURES = ((4, 0, 20, 2), (5, 0, 30, 2), (6, 0, 100, 2), (9, 0, 50, 2), (4, 1, 10, 1), (5, 1, 5, 1), (8, 2, 7, 1))
#: Kind, owner, object, function; own and deferred instructions.
WORKS = ((1, 1, PIPE, 1, 190, 10), (1, 2, -1, 1, 15, 0), (2, 1, -1, 4, 7, 0))
#: The same; own and deferred of each, how many, and the sums.
CASES = ((1, 1, PIPE, 1, 90, 0, 1, 90, 0), (1, 1, PIPE, 1, 100, 10, 1, 100, 10), (2, 1, -1, 4, 7, 0, 1, 7, 0))


def chunk(tag: bytes, count: int, payload: bytes) -> bytes:
    return struct.pack("<4sIQ", tag, count, len(payload)) + payload


def rows(tag: bytes, form: str, *found: tuple[int, ...]) -> bytes:
    return chunk(tag, len(found), b"".join(struct.pack(form, *row) for row in found))


def purpose(row: tuple[int, ...]) -> tuple[int, ...]:
    return (*row[:4], 0, *row[4:])


def data() -> bytes:
    """A load that executed 222 instructions of the kernel, ahead of which nothing ran."""
    roots = ((0, 0xFFFFFFFF),) * 4
    return b"".join(
        (
            b"VTCALLS1",
            chunk(b"OWNR", 3, b"boot\0other\0client\0"),
            chunk(b"MRKN", 2, b"load\0load_end\0"),
            rows(b"NODE", "<2I", *roots),
            chunk(b"STEP", 1, struct.pack("<q3Q", 0, 3, 0, 0)),
            chunk(b"USER", 3, struct.pack("<3Q", 0, 0, 0)),
            rows(b"WORK", "<HHiII2Q"),
            rows(b"CASE", "<HHiII5Q"),
            rows(b"CONT", "<IIQQ"),
            rows(b"NODE", "<2I", *NODES),
            chunk(b"STEP", 1, struct.pack("<q3Q", 1, 3, 222, 90)),
            chunk(b"USER", 3, struct.pack("<3Q", 0, 40, 50)),
            rows(b"WORK", "<HHiII2Q", *map(purpose, WORKS)),
            rows(b"CASE", "<HHiII5Q", *map(purpose, CASES)),
            rows(b"CONT", "<IIQQ", *FIGURES),
            chunk(b"CUT.", 2, struct.pack("<2Q", 0, 0)),
            chunk(b"END.", 0, b""),
        )
    )


def code() -> CallCode:
    return followed_code.require(named("x86_64"))


@pytest.fixture
def boot() -> FollowedBoot:
    return FollowedBoot(calls_file.parse(data()), NAMES, code())


def test_costs_tree_and_functions_add_up_to_the_total(boot: FollowedBoot) -> None:
    costs, tree = boot.costs(During.LOAD), boot.tree(During.LOAD)
    assert boot.total(During.LOAD) == 222 == sum(one.own + one.soft for one in costs)
    assert int(tree.own.sum()) == 222 == sum(tree.functions().values())
    assert sum(int(line.rsplit(" ", 1)[1]) for line in stack_formats.folded(tree).splitlines()) == 222
    assert boot.total(During.BOOT) == 0 == len(boot.costs(During.BOOT))


def test_a_call_is_told_by_what_it_is_made_on_and_whose_it_is(boot: FollowedBoot) -> None:
    reads, others, interrupt = boot.costs(During.LOAD)
    assert (reads.call, reads.on, reads.owner, reads.own, reads.soft) == ("read", "pipe", "program", 190, 10)
    assert (reads.count, reads.least, reads.mean, reads.most, reads.p99) == (2, 90, 95.0, 100, None)
    assert reads.lengths == ((90, 1), (100, 1))
    assert (others.on, others.owner, others.count, others.least) == ("", "client", 0, None)
    assert (interrupt.call, interrupt.own) == ("asm_sysvec_x", 7)


def test_a_load_is_split_by_who_executed_it_and_all_rows_add_up(boot: FollowedBoot) -> None:
    """The programs' 40 and the client's 50 instructions stand beside the kernel's 222."""
    boot = replace(boot, requests=2)
    found = request_split.rows(boot)
    assert [(row.part.value, row.what, row.instructions) for row in found] == [
        ("programs", "its own code", 40),
        ("system calls", "read on pipe", 190),
        ("interrupts", "asm_sysvec_x", 7),
        ("softirqs", "in the programs' calls", 10),
        ("the client's program", "its own code", 50),
        ("the client's calls", "read", 15),
    ]
    users = sum(sum(one.users.values()) for one in boot.stretches(During.LOAD))
    assert sum(row.instructions for row in found) == 312 == boot.total(During.LOAD) + users
    *_, last = request_split.table(boot)
    assert (last["part"], last["instructions"], last["a_request"], last["share"]) == (
        "everything",
        312,
        156.0,
        "100.0%",
    )
    # Without requests, nothing is divided.
    assert {row["a_request"] for row in request_split.table(replace(boot, requests=0))} == {""}


def test_p99_is_told_from_a_hundred_calls_on() -> None:
    from vmtailor.analysis.calls.call_shares import _percentile

    assert _percentile(((5, 99), (80, 1)), 100) == 5
    assert _percentile(((5, 98), (70, 1), (80, 1)), 100) == 70


def test_a_tree_is_of_one_call_on_one_thing_of_one_owner(boot: FollowedBoot) -> None:
    tree = boot.tree(During.LOAD, "read", "pipe", "program")
    assert int(tree.own.sum()) == 200
    shown = [(row["depth"], row["function"], row["own"], row["with_callees"], row["entered"])
             for row in call_rows.tree_rows(tree)]  # fmt: skip
    assert shown == [
        (0, "[kernel]", 0, 200, 0),
        (1, "entry", 20, 200, 2),
        (2, "__x64_sys_read", 30, 180, 2),
        (3, "pipe_read", 100, 150, 2),
        (4, "memcpy", 50, 50, 2),
    ]
    assert stack_formats.folded(boot.tree(During.LOAD, "read", owner="client")) == (
        "[kernel];entry 10\n[kernel];entry;__x64_sys_read 5\n"
    )


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (("write",), "no call is called 'write' here"),
        (("", "socket"), "no thing that calls are made on"),
        (("", "", "me"), "no owner"),
    ],
)
def test_what_nobody_did_is_refused_with_what_there_is(boot: FollowedBoot, asked: tuple[str, ...], words: str) -> None:
    with pytest.raises(UserInputError, match=words) as error:
        boot.tree(During.LOAD, *asked)
    assert error.value.hint.startswith("there are: ")


def test_small_branches_are_one_row_and_nothing_is_lost(boot: FollowedBoot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_rows, "_LEAST_SHARE", 0.3)
    found = call_rows.tree_rows(boot.tree(During.LOAD))
    assert sum(row["own"] for row in found) == 222
    assert [row["function"] for row in found if row["function"].startswith("(")] == ["(1 smaller)", "(1 smaller)"]


def test_speedscope_gets_each_path_with_its_weight(boot: FollowedBoot) -> None:
    document = stack_formats.speedscope(boot.tree(During.LOAD), "x")
    (profile,) = document["profiles"]
    frames = [one["name"] for one in document["shared"]["frames"]]
    assert sum(profile["weights"]) == 222 == profile["endValue"]
    assert max(max(sample) for sample in profile["samples"]) == len(frames) - 1


def event(name: str, *args: str, seconds: float = 0.001) -> SyscallEvent:
    return SyscallEvent(1, 7, "p", name, args, 0, "", seconds, "load")


def test_constant_arguments_are_ranked_by_what_their_calls_cost(boot: FollowedBoot) -> None:
    events = [event("read", "3", "a", "8"), event("read", "3", "b", "8"), event("close", "4"), event("close", "4")]
    found = call_rows.constant_rows(boot.costs(During.LOAD), events)
    assert [(row["call"], row["argument"], row["value"], row["instructions"]) for row in found] == [
        ("read", 1, "3", 200),
        ("read", 3, "8", 200),
        ("close", 1, "4", 0),
    ]


def test_the_tracers_times_stand_beside_a_programs_calls(boot: FollowedBoot) -> None:
    events = [event("read", seconds=0.001), event("read", seconds=0.003)]
    first, second, _ = call_rows.cost_rows(boot.costs(During.LOAD), events)
    assert (first["min_us"], first["mean_us"], first["max_us"]) == (1000, 2000, 3000)
    assert second["min_us"] == ""


def test_the_page_has_each_bar_that_can_be_seen_and_no_markup_of_a_guest(boot: FollowedBoot) -> None:
    hostile = FollowedBoot(boot.graph, ("<script>", *NAMES[1:]), boot.code)
    tree = hostile.tree(During.LOAD)
    text = call_page.page("t", "load", tree, hostile.costs(During.LOAD))
    assert len(call_page.bars(tree)) == 2 + len({node for node, *_ in FIGURES})
    assert "<script>:" not in text and "&lt;script&gt;" in text
    assert call_page.bars(hostile.tree(During.BOOT)) == ()


def test_histograms_are_of_calls_that_differ_and_hold_each_call() -> None:
    lengths = ((100, 60), (130, 20), (9000, 1))
    one = CallCost(WorkKind.CALL, "read", "pipe", "program", 0, 0, 81, 100, 1.0, 9000, None, lengths)
    few = replace(one, count=3, lengths=((5, 1), (6, 2)))
    same = replace(one, lengths=((100, 81),))
    interrupt = replace(one, kind=WorkKind.INTERRUPT)
    (found,) = call_page.histograms([one, few, same, interrupt])
    assert (found.title, found.count, found.least, found.most) == ("read on pipe, program", 81, 100, 9000)
    texts = [bar.text for bar in found.bars]
    assert texts == ["60 of 81: 100 instructions", "20 of 81: 130 instructions", "1 of 81: 9,000 instructions"]
    assert found.bars[0].height == 80 and found.bars[0].x == 0 and found.bars[-1].x + found.bars[-1].width <= 360
    assert all(bar.y + bar.height == 80 for bar in found.bars)


def test_what_is_never_entered_is_read_from_the_code() -> None:
    """Function 1 calls 2 and 3 and the thunk, and jumps to 4; it jumps within itself, and past the begin of another."""
    base = 0xFFFFFFFF80200000
    names = (*NAMES, "__SCT__might_resched")
    table = SymbolTable.of([(base + 0x100 * at, name, True) for at, name in enumerate(names)], "x86_64")
    start = base + 0x100

    def to(code: int, at: int, target: int) -> bytes:
        return bytes([code]) + struct.pack("<i", target - at - 5)

    calls = [(0xE8, 0x200), (0xE8, 0x300), (0xE8, 0x600), (0xE9, 0x400), (0xE9, 0x120), (0xE8, 0x508)]
    body = b"".join(to(code, start + 5 * i, base + target) for i, (code, target) in enumerate(calls))
    kernel = header() + struct.pack("<IIQQQQQQ", 1, 5, 120, start, start, len(body), len(body), 16) + body
    targets = call_targets.of_kernel(kernel, table, named("x86_64"))
    assert targets is not None
    assert [table.names[one] for one in targets.of(1)] == [
        "pipe_read", "sock_read_iter", "asm_sysvec_x", "__SCT__might_resched",
    ]  # fmt: skip
    assert targets.of(0) == () == targets.of(99)  # not in the file; no function
    found = FollowedBoot(calls_file.parse(data()), NAMES, code())
    rows = call_rows.tree_rows(found.tree(During.LOAD, "read", "pipe"), targets)
    never = {row["function"]: row["never"] for row in rows if "never" in row}
    assert never["__x64_sys_read"] == ["asm_sysvec_x", "sock_read_iter"]
    assert call_targets.of_kernel(b"no ELF", table, named("x86_64")) is None


def header() -> bytes:
    """Return the header of a little-endian 64-bit ELF program with one program header."""
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    return ident + struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, 0x1100, 64, 0, 0, 64, 56, 1, 0, 0, 0)


def test_functions_have_what_any_of_their_names_has() -> None:
    table = SymbolTable.of(
        [(0x10, "__do_sys_read", True), (0x10, "__x64_sys_read", True), (0x20, "pipe_read [fs]", True),
         (0x30, "ret_from_fork_asm", True), (0x40, "irq_entries_start", True), (0x50, "handle_softirqs", True)],
        "x86_64",
    )  # fmt: skip
    found = followed_code.of_table(table, code()).functions
    assert [one.flags for one in found[:5]] == [
        FunctionFlags.CALL,
        FunctionFlags.NONE,
        FunctionFlags.THREAD,
        FunctionFlags.INTERRUPT | FunctionFlags.STUBS,
        FunctionFlags.SOFT,
    ]
    assert [one.object for one in found[:3]] == [-1, PIPE, -1]
    assert len(found) == 6  # the last one ends the table


@pytest.mark.parametrize(
    ("function", "call"),
    [("__x64_sys_sendfile64", "sendfile"), ("__x64_sys_accept4", "accept4"), ("__do_sys_fork", "fork"), ("f", "f")],
)
def test_calls_have_the_names_that_programs_know(function: str, call: str) -> None:
    assert followed_code.call_name(function, code()) == call


def test_code_between_modules_is_nobodys() -> None:
    table = SymbolTable.of([(0x10, "f", True), (0x100, "_end", False)], "x86_64")
    whole = followed_code.with_modules(table, [(0x1000, "g [m]")], [0x2000])
    assert [whole.name_of(at) for at in (0x20, 0x200, 0x1001, 0x2001)] == ["f", "[unknown]", "g [m]", "[unknown]"]


def test_other_processors_are_refused_in_one_sentence() -> None:
    others = [one for one in every() if one.following is None]
    assert others
    for one in others:
        with pytest.raises(UserInputError, match="cannot be followed"):
            followed_code.require(one)


@given(st.binary(max_size=40), st.integers(0, 900))
def test_damage_is_an_error_of_its_kind(noise: bytes, at: int) -> None:
    whole = data()
    at = min(at, len(whole))
    try:
        found = calls_file.parse(whole[:at] + noise + whole[at + len(noise) :])
        FollowedBoot(found, NAMES, code()).costs(During.ALL)
        FollowedBoot(found, NAMES, code()).tree(During.ALL).functions()
    except VmtailorError:
        pass


@given(st.integers(8, 1200))
def test_a_file_that_is_cut_off_is_read_as_far_as_it_goes(at: int) -> None:
    whole = data()
    cut = whole[: min(at, len(whole) - 1)]
    found: Any = calls_file.parse(cut)
    assert not found.complete
