# SPDX-License-Identifier: Apache-2.0
"""The plugin in a real QEMU, with a guest whose instructions can be counted by hand (tests/guests/counting.S).

$VMTAILOR_QEMU names a second QEMU, of another version, to be tested beside the one on the PATH."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from tests.fakes.counted_guest import HIGH, Guest, assemble, assert_refused, boot

from vmtailor.drivers.qemu.qemu_program import Qemu
from vmtailor.model.boots.counters import CodeMark, CodeOwner, CodeSpan, Counters, CountingConfig, CountingMode, Stretch

pytestmark = pytest.mark.contract

MARKS = ("mark_loop", "mark_ports", "mark_mmio", "mark_faults", "mark_first", "mark_second", "mark_end")


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Guest:
    return assemble("counting", tmp_path_factory.mktemp("guest"))


def config_for(
    labels: dict[str, int], mode: CountingMode = CountingMode.COUNTS, devices: bool = True
) -> CountingConfig:
    return CountingConfig(
        kernel=HIGH + labels["kernel"],
        mode=mode,
        devices=devices,
        marks=tuple(CodeMark(name, HIGH + labels[name]) for name in MARKS),
        spans=(CodeSpan("spanned", HIGH + labels["spanned"]),),
        owners=(
            CodeOwner("first", labels["first"], labels["second"]),
            CodeOwner("second", labels["second"], labels["second_end"]),
        ),
    )


def stretch(counters: Counters, begin: str) -> Stretch:
    return next(s for s in counters.stretches if s.begin == begin)


def owner(of: Stretch, name: str) -> tuple[int, int]:
    found = next(o for o in of.owners if o.owner == name)
    return found.kernel, found.user


def test_instructions_are_counted_as_by_hand_and_as_by_the_guests_clock(
    program: Qemu, guest: Guest, tmp_path: Path
) -> None:
    counters, readings, _ = boot(program, guest, config_for(guest.labels), tmp_path)
    assert counters.complete
    assert counters.exact
    reached = [counters.at(name) for name in MARKS]
    assert [name for name, _ in counters.marks] == list(MARKS)
    executed = [totals.executed for totals in reached if totals is not None]
    by_hand = [2 + 2000 + 3, 8 + 4 + 3, 3 + 10 * 6 + 3, 2 + 10 * 15 + 3, 6 + 1501 + 2002 + 3, 6 + 301 + 1502 + 3]
    assert [b - a for a, b in pairwise(executed)] == by_hand
    # An access that faults is begun twice; the guest's clock counts only the second: the one difference.
    by_clock = [b - a for a, b in pairwise(readings)]
    assert by_hand[3] - by_clock[3] == 10
    assert by_hand[:3] + by_hand[4:] == by_clock[:3] + by_clock[4:]


def test_to_settle_counts_nothing_and_changes_nothing(program: Qemu, guest: Guest, tmp_path: Path) -> None:
    counted = boot(program, guest, config_for(guest.labels), tmp_path / "counts")[1]
    counters, readings, _ = boot(program, guest, config_for(guest.labels, CountingMode.SETTLE), tmp_path / "settle")
    assert readings == counted and len(readings) == len(MARKS)
    assert [totals.executed for _, totals in counters.marks] == []
    (whole,) = counters.stretches
    assert whole.at_end.executed == 0


def test_accesses_to_devices_are_counted(program: Qemu, guest: Guest, tmp_path: Path) -> None:
    counters, _, _ = boot(program, guest, config_for(guest.labels), tmp_path)
    at = {name: counters.at(name) for name in MARKS}
    loop, ports, mmio, faults = (at[name] for name in MARKS[:4])
    assert loop is not None and ports is not None and mmio is not None and faults is not None
    assert mmio.since(ports).ports == 4 + 3 + 1  # QEMU starts a repeated instruction once more, to find it done
    assert mmio.since(ports).mmio == 0
    assert faults.since(mmio).ports == 0
    assert faults.since(mmio).mmio == 20
    assert dict(stretch(counters, "mark_mmio").devices) == {"apic-msi": 20}
    assert loop.ports == 0


def test_work_goes_to_its_owner(program: Qemu, guest: Guest, tmp_path: Path) -> None:
    counters, _, _ = boot(program, guest, config_for(guest.labels), tmp_path)
    first = stretch(counters, "mark_first")
    # addq, movl, movl, leaq, movl, sysretq before it; jmpq, movl, 1000 × 2, rdtsc, movl, movl after it
    assert owner(first, "first") == (1 + 1 + 2000 + 3, 3 * 500 + 1)
    assert owner(first, "boot") == (6, 0)
    second = stretch(counters, "mark_second")
    assert owner(second, "first") == (6, 0)
    assert owner(second, "second") == (1 + 1 + 300 * 5 + 3, 3 * 100 + 1)
    assert owner(second, "other") == (0, 0)


def test_spans_give_the_instructions_between_passages(program: Qemu, guest: Guest, tmp_path: Path) -> None:
    counters, _, _ = boot(program, guest, config_for(guest.labels), tmp_path)
    assert len(counters.spans) == 300
    gaps = {b.at.executed - a.at.executed for a, b in pairwise(counters.spans)}
    assert gaps == {5}  # nop, ret, decl, jnz, call


def test_two_boots_give_the_same_file_and_blocks_add_up(program: Qemu, guest: Guest, tmp_path: Path) -> None:
    counters, _, data = boot(program, guest, config_for(guest.labels), tmp_path / "a")
    assert boot(program, guest, config_for(guest.labels), tmp_path / "b")[2] == data
    for before, one in pairwise(counters.stretches):
        here = one.at_end.since(before.at_end)
        assert int(one.executed.sum()) == here.early + here.kernel
        assert sum(o.kernel for o in one.owners) == here.kernel
        assert sum(o.user for o in one.owners) == here.user


def test_coverage_counts_blocks_whole(program: Qemu, guest: Guest, tmp_path: Path) -> None:
    exact, _, _ = boot(program, guest, config_for(guest.labels), tmp_path / "a")
    whole, _, _ = boot(program, guest, config_for(guest.labels, CountingMode.COVERAGE), tmp_path / "b")
    assert not whole.exact
    assert int(stretch(whole, "mark_faults").executed.sum()) == 0
    counted, covered = stretch(exact, "mark_faults"), stretch(whole, "mark_faults")
    entered = counted.entries > 0  # the block that the mark lies in was entered before it
    assert counted.entries[entered].tolist() == covered.entries.tolist()
    assert counted.block[entered].tolist() == covered.block.tolist()
    # Blocks left by a fault count whole.
    assert int((covered.entries * whole.blocks.insns[covered.block]).sum()) > int(counted.executed.sum())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mode fast\n", "line 1: unknown value"),
        ("# fine\nmark a xyz\n", "line 2: bad address"),
        ("owner a 20 10\n", "line 1: bad address range"),
        ("mark a\n", "line 1: mark NAME ADDRESS"),
        ("kernel\n", "line 1: kernel ADDRESS"),
        ("sing a song\n", "line 1: unknown statement"),
    ],
)
def test_a_wrong_configuration_is_refused(program: Qemu, tmp_path: Path, text: str, words: str) -> None:
    assert_refused(program, text, words, tmp_path)
