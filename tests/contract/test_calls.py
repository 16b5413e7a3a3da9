# SPDX-License-Identifier: Apache-2.0
"""The plugin that follows calls in a real QEMU, with a guest whose tree of calls is drawn by hand
(tests/guests/calling.S)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes.counted_guest import HIGH, Guest, assemble, boot, follow

from vmtailor.analysis.calls import followed_code
from vmtailor.analysis.calls.call_shares import FollowedBoot
from vmtailor.analysis.cost.plugin_counts import SymbolTable
from vmtailor.base import natives
from vmtailor.base.process import CommandFailed, run
from vmtailor.drivers.monitors import calls_file
from vmtailor.drivers.qemu import plugin
from vmtailor.drivers.qemu.qemu_program import Qemu
from vmtailor.model.architecture import named
from vmtailor.model.boots.call_graph import OTHERS, ROOT_NODES, CallStretch, WorkKind
from vmtailor.model.boots.counters import CodeMark, CodeOwner, CountingConfig

pytestmark = pytest.mark.contract

MARKS = ("mark_calls", "mark_threads", "mark_program", "mark_end")
FUNCTIONS = (
    "kernel", "plain", "outer", "inner", "__x86_return_thunk", "__x86_indirect_thunk_rax", "interrupted", "faulty",
    "asm_sysvec_test", "in_handler", "asm_exc_invalid_op", "switch_stacks", "ret_from_fork_asm", "worker",
    "entry_SYSCALL_64", "__x64_sys_read", "pipe_read", "after",
)  # fmt: skip
#: Path → own instructions, times entered, between two marks. The three instructions ahead of a mark are the kernel's.
OF_CALLS = {
    "kernel": (1 + (1 + 30) + (1 + 15) + (2 + 9) + (1 + 12) + (1 + 6) + 3, 0),
    "kernel/plain": (10 * 2, 10),
    "kernel/outer": (5 * 2, 5),
    "kernel/outer/inner": (5 * 2, 5),
    "kernel/outer/inner/__x86_return_thunk": (5, 5),
    "kernel/__x86_indirect_thunk_rax": (3 * 3, 3),
    "kernel/inner": (3 * 2, 3),
    "kernel/inner/__x86_return_thunk": (3, 3),
    "kernel/interrupted": (4 * 4, 4),
    "kernel/faulty": (2 * 2, 2),
    "kernel/faulty/asm_exc_invalid_op": (2 * 2, 2),
    "[interrupts]/asm_sysvec_test": (4 * 2, 4),
    "[interrupts]/asm_sysvec_test/in_handler": (4 * 2, 4),
}
OF_THREADS = {
    "kernel": (6 + 3 * 3 + 3, 0),
    "kernel/switch_stacks": (3 * 2, 3),
    "[threads]/ret_from_fork_asm": (2 + 3 + 3, 1),
    "[threads]/ret_from_fork_asm/worker": (3 * 2, 3),
    "[threads]/ret_from_fork_asm/switch_stacks": (3 * 2, 3),
}
OF_PROGRAM = {
    "kernel": (5, 0),
    "entry_SYSCALL_64": (3 * 7 + 2, 4),
    "entry_SYSCALL_64/__x64_sys_read": (3 * 3, 3),
    "entry_SYSCALL_64/__x64_sys_read/pipe_read": (3 * 3, 3),
    "entry_SYSCALL_64/kernel": (3, 1),
}


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Guest:
    return assemble("calling", tmp_path_factory.mktemp("guest"))


def config_for(guest: Guest, most_nodes: int = 0) -> CountingConfig:
    table = SymbolTable.of([(HIGH + guest.labels[name], name, True) for name in FUNCTIONS], "x86_64")
    following = named("x86_64").following
    assert following is not None
    code = followed_code.of_table(table, following, **({"most_nodes": most_nodes} if most_nodes else {}))
    return CountingConfig(
        kernel=HIGH + guest.labels["kernel"],
        marks=tuple(CodeMark(name, HIGH + guest.labels[name]) for name in MARKS),
        owners=(CodeOwner("first", guest.labels["program"], guest.labels["program_end"]),),
        architecture="x86_64",
        follow=code,
    )


def followed(data: bytes) -> FollowedBoot:
    following = named("x86_64").following
    assert following is not None
    return FollowedBoot(calls_file.parse(data), FUNCTIONS, following)


def paths(found: FollowedBoot, stretch: CallStretch) -> dict[str, tuple[int, int]]:
    """Return the figures of each path that ran in a stretch."""
    graph, sums = found.graph, dict[str, tuple[int, int]]()
    for node, own, entered in zip(stretch.node.tolist(), stretch.self.tolist(), stretch.entered.tolist(), strict=True):
        at, names = node, list[str]()
        while at >= ROOT_NODES:
            names.insert(0, found.function(int(graph.function[at])))
            at = int(graph.parent[at])
        if at:
            names.insert(0, ["", "[interrupts]", "[threads]", "[other paths]"][at])
        before = sums.get("/".join(names), (0, 0))
        sums["/".join(names)] = (before[0] + own, before[1] + entered)
    return sums


def test_calls_are_drawn_as_by_hand(program: Qemu, guest: Guest, tmp_path: Path) -> None:
    found = followed(follow(program, guest, config_for(guest), tmp_path))
    begun = {stretch.begin: stretch for stretch in found.graph.stretches}
    assert found.graph.complete and not found.graph.cut and not found.graph.rounded
    assert paths(found, begun["mark_calls"]) == OF_CALLS
    assert paths(found, begun["mark_threads"]) == OF_THREADS
    assert paths(found, begun["mark_program"]) == OF_PROGRAM
    assert begun["mark_program"].users["first"] == 12


def test_work_is_told_by_call_and_by_what_it_is_made_on(program: Qemu, guest: Guest, tmp_path: Path) -> None:
    found = followed(follow(program, guest, config_for(guest), tmp_path))
    begun = {stretch.begin: stretch for stretch in found.graph.stretches}
    told = {
        (one.purpose.kind, found.work(one.purpose), found.object_title(one.purpose.object)): one.own
        for one in begun["mark_program"].works
        if one.own
    }
    assert told == {
        (WorkKind.SYSTEM, "[boot and idle]", ""): 5,
        (WorkKind.CALL, "read", "pipe"): 39,
        (WorkKind.CALL, "entry_SYSCALL_64", ""): 5,
    }
    (reads,) = [one for one in begun["mark_program"].cases if one.purpose.kind is WorkKind.CALL]
    assert (reads.own, reads.soft, reads.count, reads.all_own) == (13, 0, 3, 39)
    (interrupts,) = begun["mark_calls"].cases
    assert (interrupts.purpose.kind, interrupts.own, interrupts.count) == (WorkKind.INTERRUPT, 4, 4)


def test_the_sums_are_what_the_other_plugin_counts(program: Qemu, guest: Guest, tmp_path: Path) -> None:
    config = config_for(guest)
    found = followed(follow(program, guest, config, tmp_path / "calls"))
    counters, _, _ = boot(program, guest, replace(config, follow=None), tmp_path / "counts")
    before = 0
    for ours, theirs in zip(found.graph.stretches, counters.stretches, strict=True):
        counted = theirs.at_end.kernel - before
        before = theirs.at_end.kernel
        assert (ours.begin, ours.kernel) == (theirs.begin, counted)
        assert counted == int(ours.self.sum()) == sum(one.own + one.soft for one in ours.works)


def test_two_boots_give_the_same_file(program: Qemu, guest: Guest, tmp_path: Path) -> None:
    config = config_for(guest)
    assert follow(program, guest, config, tmp_path / "a") == follow(program, guest, config, tmp_path / "b")


def test_what_there_is_no_room_for_goes_to_its_function(program: Qemu, guest: Guest, tmp_path: Path) -> None:
    """Sums by function stay exact where the tree is cut, and it is said."""
    whole = followed(follow(program, guest, config_for(guest), tmp_path / "a"))
    cut = followed(follow(program, guest, config_for(guest, most_nodes=8), tmp_path / "b"))
    assert cut.graph.cut > 0
    assert OTHERS in cut.graph.parent[ROOT_NODES:]

    def by_function(found: FollowedBoot) -> dict[str, int]:
        sums: dict[str, int] = {}
        for stretch in found.graph.stretches:
            for path, (own, _) in paths(found, stretch).items():
                sums[path.rpartition("/")[2]] = sums.get(path.rpartition("/")[2], 0) + own
        return {name: own for name, own in sums.items() if own}

    assert by_function(cut) == by_function(whole)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sing a song\n", "line 1: no statement"),
        ("function 20 0 -1\nfunction 10 0 -1\n", "line 2: no statement, or functions are not in ascending order"),
        ("opcode fly e8 ff 0 0\n", "line 1: no statement"),
        ("stack 3000\n", "line 1: no statement"),
        ("stack 4000\n", "functions and opcodes must be said"),
    ],
)
def test_wrong_functions_are_refused(program: Qemu, guest: Guest, tmp_path: Path, text: str, words: str) -> None:
    assert program.plugin_api is not None
    prepared = plugin.prepare(natives.locate().call_plugin(program.plugin_api), config_for(guest), tmp_path)
    assert prepared.functions is not None
    prepared.functions.write_text(text)
    argv = [program.program, "-machine", "microvm", "-nodefaults", "-display", "none", "-plugin", prepared.option()]
    with pytest.raises(CommandFailed) as error:
        run(argv, timeout_s=30)
    assert words in error.value.details
