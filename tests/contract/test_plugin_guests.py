# SPDX-License-Identifier: Apache-2.0
"""A guest within the guest, counted apart by the plugin in a real QEMU that emulates AMD's SVM. The instructions of
both can be counted by hand (tests/guests/virtual.S).

$VMTAILOR_QEMU names a second QEMU, of another version, to be tested beside the one on the PATH."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from tests.fakes.counted_guest import HIGH, Guest, assemble, assert_refused, boot

from vmtailor.drivers.qemu.qemu_program import Qemu
from vmtailor.model.boots.counters import ENTRY, CodeMark, CodeSpan, Counters, CountingConfig, CountingMode, Totals

pytestmark = pytest.mark.contract

MARKS = (
    "mark_host", "mark_early", "mark_shared", "mark_again", "mark_own", "mark_user", "mark_memory", "mark_interrupt",
    "mark_end",
)  # fmt: skip
#: Instructions of the host between marks, besides what a comment says: the mark's own, and those of one entry.
MARK, ENTER = 4, 7
HOST = {
    "mark_host": MARK + 2 + 2 * 1000 + 1,
    "mark_early": MARK + ENTER,
    "mark_shared": MARK + ENTER,
    "mark_again": MARK + ENTER,
    "mark_own": MARK + 3 + 3 * (ENTER + 2),
    "mark_user": MARK + ENTER,
    "mark_memory": MARK + ENTER + 2 + 3 + 3 + 2,  # movl, vmrun, jmpq at the second entry
    "mark_interrupt": MARK + 5 + 10 * (ENTER + 4),
}
#: Those of the guest: early, kernel, user; then how often it is entered.
GUEST = {
    "mark_host": (0, 0, 0, 0),
    "mark_early": (1 + 2 * 50 + 1, 0, 0, 1),
    "mark_shared": (0, 2 + 2 * 500 + 1 + 1, 0, 1),
    "mark_again": (0, 1 + 2 * 50 + 1, 0, 1),
    "mark_own": (0, 3 * 6, 0, 3),
    "mark_user": (0, 3, 1 + 3 * 100 + 2, 1),
    "mark_memory": (0, 1 + 2 + 1, 0, 2),
    "mark_interrupt": (0, 0, 0, 10),
}


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Guest:
    return assemble("virtual", tmp_path_factory.mktemp("guest"))


def config_for(labels: dict[str, int]) -> CountingConfig:
    """Marks between the parts, and others at addresses that both reach: the code that they share, and that behind the
    entry."""
    return CountingConfig(
        kernel=HIGH + labels["kernel"],
        marks=tuple(CodeMark(name, HIGH + labels[name]) for name in MARKS),
        spans=(
            CodeSpan("host's-work", HIGH + labels["work"]),
            CodeSpan("guest's-work", HIGH + labels["work"], in_guest=True),
            CodeSpan("host-behind", HIGH + labels["behind"]),
            CodeSpan("guest-behind", HIGH + labels["behind"], in_guest=True),
            CodeSpan("host's-program", labels["program"]),
            CodeSpan("guest's-program", labels["program"], in_guest=True),
        ),
        guests=True,
    )


def between(counters: Counters) -> dict[str, Totals]:
    """What was executed from each mark to the next."""
    reached = [(name, at) for name, at in counters.marks if name in MARKS]
    assert [name for name, _ in reached] == list(MARKS)
    return {name: later.since(at) for (name, at), (_, later) in pairwise(reached)}


def test_host_and_guest_are_counted_as_by_hand(program: Qemu, guest: Guest, tmp_path: Path) -> None:
    counters, _, _ = boot(program, guest, config_for(guest.labels), tmp_path)
    assert counters.complete and counters.guests
    found = between(counters)
    assert {name: one.early + one.kernel + one.user for name, one in found.items()} == HOST
    guests = {name: one.guest for name, one in found.items()}
    assert {name: (one.early, one.kernel, one.user, one.entries) for name, one in guests.items()} == GUEST


def test_all_is_early_until_the_guests_kernel_is_reached(program: Qemu, guest: Guest, tmp_path: Path) -> None:
    config = replace(config_for(guest.labels), guest_kernel=HIGH + guest.labels["guest_program"])
    found = between(boot(program, guest, config, tmp_path)[0])
    assert (found["mark_again"].guest.early, found["mark_again"].guest.kernel) == (1 + 2 * 50 + 1, 0)
    assert (found["mark_user"].guest.early, found["mark_user"].guest.user) == (0, GUEST["mark_user"][2])


def test_host_and_guest_add_up_to_the_instruction_clock(program: Qemu, guest: Guest, tmp_path: Path) -> None:
    """An instruction that leaves the guest is begun, and the clock does not count it: VMMCALL, or what misses a page.
    An interrupt leaves it between two."""
    counters, readings, _ = boot(program, guest, config_for(guest.labels), tmp_path)
    by_clock = [b - a for a, b in pairwise(readings)]
    exits = {name: 0 if name == "mark_interrupt" else one[3] for name, one in GUEST.items()}
    found = between(counters)
    assert [one.executed - exits[name] for name, one in found.items()] == by_clock


def test_marks_and_spans_are_the_hosts_or_the_guests(program: Qemu, guest: Guest, tmp_path: Path) -> None:
    config = config_for(guest.labels)
    own = (CodeMark("first", ENTRY), CodeMark("program", guest.labels["program"], in_guest=True))
    counters, _, _ = boot(program, guest, replace(config, marks=config.marks + own), tmp_path)
    passages = [one.name for one in counters.spans]
    entries = sum(one[3] for one in GUEST.values())
    assert {name: passages.count(name) for name in sorted(set(passages))} == {
        "guest's-program": 1, "guest's-work": 500, "guest-behind": 3, "host's-work": 1000, "host-behind": entries,
    }  # fmt: skip
    at = dict(counters.marks)
    assert list(at)[:3] == ["mark_host", "mark_early", "first"]
    assert at["first"].since(at["mark_early"]) == Totals(kernel=1 + ENTER - 2)  # without VMRUN and what is behind it
    assert at["program"].since(at["mark_user"]).guest.kernel == 2
    assert at["program"].since(at["mark_user"]).guest.user == 0


def test_two_boots_agree_and_nothing_else_changes(program: Qemu, guest: Guest, tmp_path: Path) -> None:
    config = config_for(guest.labels)
    _, readings, data = boot(program, guest, config, tmp_path / "a")
    assert boot(program, guest, config, tmp_path / "b")[1:] == (readings, data)
    whole = CountingConfig(kernel=config.kernel, marks=config.marks)
    together, same, _ = boot(program, guest, whole, tmp_path / "c")
    assert same == readings and len(readings) == len(MARKS) and not together.guests
    expected = {name: host + sum(GUEST[name][:3]) for name, host in HOST.items()}
    assert {name: one.executed for name, one in between(together).items()} == expected


def test_coverage_counts_blocks_whole(program: Qemu, guest: Guest, tmp_path: Path) -> None:
    config = replace(config_for(guest.labels), mode=CountingMode.COVERAGE)
    counters, _, _ = boot(program, guest, config, tmp_path)
    assert {name: one.guest.entries for name, one in between(counters).items()} == {n: g[3] for n, g in GUEST.items()}
    assert between(counters)["mark_user"].guest.user == GUEST["mark_user"][2]
    assert between(counters)["mark_memory"].guest.kernel > GUEST["mark_memory"][1]  # a block left by a miss is whole


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("guest-entry 0f0\n", "line 1: guest-entry BYTES"),
        ("guest-entry zz\n", "line 1: bad bytes"),
        ("guest-kernel\n", "line 1: guest-kernel ADDRESS"),
        ("mark a entry sometimes\n", "line 1: mark NAME ADDRESS"),
        ("architecture a\ntarget b\nhalf 1\nmark a 1 once guest\n", "a point of a guest needs guest-entry"),
        ("architecture a\ntarget b\nhalf 1\nmark a entry\n", "a point of a guest needs guest-entry"),
    ],
)
def test_a_wrong_configuration_is_refused(program: Qemu, tmp_path: Path, text: str, words: str) -> None:
    assert_refused(program, text, words, tmp_path)
