# SPDX-License-Identifier: Apache-2.0
"""The plugin's file, and what is made of it."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.analysis.cost import plugin_counts as analysis
from vmtailor.analysis.cost.plugin_counts import SymbolTable
from vmtailor.base.errors import UserInputError, VmtailorError
from vmtailor.drivers.monitors import counts_file
from vmtailor.drivers.qemu import plugin
from vmtailor.model.architecture import named
from vmtailor.model.boots.boot import FunctionCost, Phase
from vmtailor.model.boots.counters import (
    ENTRY,
    CodeMark,
    CodeOwner,
    CodeSpan,
    CountingConfig,
    CountingMode,
    GuestTotals,
    OwnerCounts,
    Totals,
)

IMAGE_MAP = named("x86_64").addresses.image_map
NM = """
ffffffff81000000 T _stext
ffffffff81000000 t pvh_start_xen
ffffffff81000100 T startup_64
0000000001000100 A phys_startup_64
ffffffff81000200 T start_kernel
ffffffff81000300 T do_one_initcall
ffffffff81000400 t a_init
ffffffff81000500 t b_init
ffffffff81000600 t idle
ffffffff81000700 T _etext
ffffffff81100000 d __initcall__kmod_a__12_34_a_init6
ffffffff81100004 d __initcall__kmod_b__13_35_b_init3s
ffffffff81100008 D jiffies
"""


def chunk(tag: bytes, count: int, payload: bytes) -> bytes:
    return tag + struct.pack("<IQ", count, len(payload)) + payload


def names(tag: bytes, *texts: str) -> bytes:
    return chunk(tag, len(texts), b"".join(text.encode() + b"\0" for text in texts))


def step(
    mark: int, totals: Totals, owners: list[tuple[int, int]], devices: list[int], rows: list[tuple[int, int, int]]
) -> bytes:
    head = struct.pack(
        "<q5Q4I", mark, totals.early, totals.kernel, totals.user, totals.ports, totals.mmio,
        len(owners), len(devices), len(rows), 0,
    )  # fmt: skip
    body = b"".join(struct.pack("<2Q", *pair) for pair in owners)
    body += struct.pack(f"<{len(devices)}Q", *devices) + b"".join(struct.pack("<3Q", *row) for row in rows)
    return chunk(b"STEP", 1, head + body)


def span(number: int, executed: int) -> bytes:
    return struct.pack("<6Q", number, 0, executed, 0, 0, 0)


def block(vaddr: int, lengths_at: int, early: bool = False, ports: int = 0) -> bytes:
    """A block of two instructions, of one and three bytes."""
    return struct.pack("<QIIHHI", vaddr, 2, 4, 0 if early else 1, ports, lengths_at)


#: A boot: firmware, the kernel's first code at its physical address, kernel, container, client.
HEAD = counts_file.MAGIC + names(b"MODE", "counts", "on") + names(b"OWNR", "boot", "other", "client")
HEAD += names(b"MRKN", "kernel", "init", "entry", "ready", "load", "load_end") + names(b"SPNN", "-", "a_init", "b_init")
BOOT = (
    HEAD
    + chunk(b"BLCK", 2, block(0xFFF0, 0, early=True) + block(0x1000100, 2, early=True))
    + chunk(b"LENS", 0, bytes([1, 3, 1, 3]))
    + step(0, Totals(early=10, ports=2), [(0, 0)] * 3, [], [(0, 5, 10)])
    + chunk(b"SPAN", 4, span(1, 5) + span(0, 10) + span(1, 12) + span(0, 40))
    + chunk(b"BLCK", 2, block(IMAGE_MAP + 0x1000410, 4) + block(IMAGE_MAP + 0x1000600, 6, ports=1))
    + chunk(b"LENS", 0, bytes([1, 3, 1, 3]))
    + step(1, Totals(14, 100, 0, 3, 5), [(100, 0), (0, 0), (0, 0)], [5], [(1, 2, 4), (2, 50, 100)])
    + step(2, Totals(14, 130, 40, 3, 5), [(0, 0), (30, 40), (0, 0)], [0], [(2, 10, 20), (3, 5, 10)])
    + step(3, Totals(14, 150, 50, 3, 6), [(0, 0), (20, 10), (0, 0)], [1], [(3, 10, 20)])
    + step(4, Totals(14, 151, 51, 3, 6), [(0, 0), (1, 1), (0, 0)], [0], [(3, 1, 1)])
    + step(5, Totals(14, 251, 151, 4, 7), [(0, 0), (60, 70), (40, 30)], [1], [(3, 50, 100)])
    + step(-1, Totals(14, 261, 151, 4, 7), [(0, 0), (10, 0), (0, 0)], [0], [(3, 5, 10)])
    + names(b"DEVN", "apic-msi")
    + chunk(b"END.", 0, b"")
)


def test_a_file_is_read_whole() -> None:
    counters = counts_file.parse(BOOT)
    assert counters.complete
    assert counters.exact
    assert counters.devices
    assert [name for name, _ in counters.marks] == ["kernel", "init", "entry", "ready", "load", "load_end"]
    assert counters.at("init") == Totals(14, 100, 0, 3, 5)
    assert counters.at("nowhere") is None
    assert counters.stretches[1].owners == (
        OwnerCounts("boot", 100, 0), OwnerCounts("other", 0, 0), OwnerCounts("client", 0, 0)
    )  # fmt: skip
    assert counters.stretches[1].devices == (("apic-msi", 5),)
    assert counters.stretches[0].begin == "reset"
    assert counters.stretches[-1].end == ""


def test_phases_add_up_and_the_client_is_kept_apart() -> None:
    phases = {p.phase: p for p in analysis.phases(counts_file.parse(BOOT))}
    assert (phases[Phase.FIRMWARE].kernel, phases[Phase.FIRMWARE].port_accesses) == (10, 2)
    assert (phases[Phase.KERNEL].kernel, phases[Phase.KERNEL].user) == (104, 0)
    assert (phases[Phase.KERNEL].port_accesses, phases[Phase.KERNEL].mmio_accesses) == (1, 5)
    assert (phases[Phase.INIT].kernel, phases[Phase.INIT].user) == (30, 40)
    assert (phases[Phase.START_UP].kernel, phases[Phase.START_UP].user) == (20, 10)
    assert (phases[Phase.SETTLE].kernel, phases[Phase.SETTLE].user) == (1, 1)  # ready → load
    load = phases[Phase.LOAD]
    assert (load.kernel, load.user, load.client_kernel, load.client_user) == (60, 70, 40, 30)
    assert phases[Phase.STOP].kernel == 10
    total = sum(p.kernel + p.user + p.client_kernel + p.client_user for p in phases.values())
    assert total == 14 + 261 + 151


def test_functions_get_their_instructions() -> None:
    rows = analysis.functions(counts_file.parse(BOOT), SymbolTable.parse(NM))
    assert FunctionCost("[firmware]", Phase.FIRMWARE, 10) in rows
    assert FunctionCost("startup_64", Phase.KERNEL, 4) in rows  # at its physical address
    assert FunctionCost("a_init", Phase.KERNEL, 100) in rows
    assert FunctionCost("idle", Phase.LOAD, 100, 50) in rows
    for phase in analysis.phases(counts_file.parse(BOOT)):
        assert sum(r.instructions for r in rows if r.phase is phase.phase) == phase.kernel + phase.client_kernel


def test_firmware_that_the_kernel_calls_is_named_in_every_phase() -> None:
    """On a processor whose firmware stays. The kernel's first code, as far below, has its functions' names."""
    begin = 0xFFFFFFFF80000000
    table = SymbolTable.parse(f"{begin:x} T _text\n{begin + 0x100:x} T primary\n{begin + 0x800:x} T idle\n", "riscv64")
    firmware = block(0x80000100, 0, early=True)
    data = (
        HEAD
        + chunk(b"BLCK", 2, firmware + block(0x80200100, 2, early=True))
        + chunk(b"LENS", 0, bytes([1, 3, 1, 3]))
        + step(0, Totals(early=10), [(0, 0)] * 3, [], [(0, 5, 10)])
        + step(1, Totals(early=16), [(0, 0)] * 3, [], [(0, 1, 2), (1, 2, 4)])
        + step(2, Totals(early=24), [(0, 0)] * 3, [], [(0, 4, 8)])
    )
    rows = analysis.functions(counts_file.parse(data), table)
    assert rows == (
        FunctionCost(analysis.FIRMWARE, Phase.FIRMWARE, 10),
        FunctionCost("primary", Phase.KERNEL, 4),
        FunctionCost(analysis.FIRMWARE, Phase.KERNEL, 2),
        FunctionCost(analysis.FIRMWARE, Phase.INIT, 8),
    )
    assert table.in_firmware(np.array([0x80000000, 0x8007FFFF, 0x80080000], np.uint64)).tolist() == [True, True, False]
    assert not SymbolTable.parse(NM).in_firmware(np.array([0, 1], np.uint64)).any()


def test_initcalls_are_timed_from_entry_to_the_next() -> None:
    counters = counts_file.parse(BOOT)
    found = analysis.initcall_costs(counters)
    assert [(x.name, x.cost.executed) for x in found] == [("a_init", 28)]
    assert [x.cost.executed for x in analysis.span_costs(counters)] == [5, 2, 28]


def test_milestones_are_the_first_passage() -> None:
    found = analysis.milestones(counts_file.parse(BOOT))
    assert [(m.name, m.executed) for m in found][:2] == [("kernel", 10), ("init", 114)]


def test_coverage_takes_blocks_whole() -> None:
    counters = counts_file.parse(BOOT.replace(names(b"MODE", "counts", "on"), names(b"MODE", "coverage", "off")))
    assert not counters.exact
    assert {p.mmio_accesses for p in analysis.phases(counters)} == {None}
    rows = analysis.functions(counters, SymbolTable.parse(NM))
    assert FunctionCost("idle", Phase.STOP, 10, 5) in rows


def test_symbols_are_found_by_address() -> None:
    table = SymbolTable.parse(NM)
    assert table.name_of(IMAGE_MAP + 0x1000000) == "pvh_start_xen"  # not the marker _stext
    assert table.name_of(IMAGE_MAP + 0x10004FF) == "a_init"
    assert table.name_of(0x1234) == analysis.UNKNOWN
    assert table.name_of(0xFFFFFFFFC0000000) == analysis.UNKNOWN  # a module's
    assert SymbolTable.parse("").name_of(5) == analysis.UNKNOWN
    marks = analysis.kernel_marks(table)
    assert [(m.name, m.address) for m in marks] == [
        ("kernel", 0x1000000),
        ("kernel", 0x1000100),
        ("start_kernel", IMAGE_MAP + 0x1000200),
    ]
    assert {(s.name, s.address & 0xFFFF) for s in analysis.initcall_spans(table)} == {
        ("-", 0x300),
        ("a_init", 0x400),
        ("b_init", 0x500),
    }


@given(st.integers(0, len(BOOT) - 1))
def test_a_file_that_is_cut_off_is_read_as_far_as_it_goes(cut: int) -> None:
    try:
        counters = counts_file.parse(BOOT[:cut])
    except UserInputError:
        return
    assert not counters.complete
    assert len(counters.stretches) <= 7
    analysis.functions(counters, SymbolTable.parse(NM))


@given(st.binary(max_size=300), st.integers(0, len(BOOT) - 1))
def test_damage_is_an_error_of_its_kind(noise: bytes, at: int) -> None:
    try:
        counts_file.parse(BOOT[:at] + noise + BOOT[at + len(noise) :])
    except UserInputError as error:
        assert error.hint


@given(st.lists(st.tuples(st.integers(0, 2**63), st.integers(0, 5)), max_size=30))
def test_blocks_give_each_address_once(starts: list[tuple[int, int]]) -> None:
    table = b"".join(struct.pack("<QIIII", at, count, 2 * count, 1, 0) for at, count in starts)
    data = HEAD + chunk(b"BLCK", len(starts), table) + chunk(b"LENS", 0, bytes([2] * 5))
    counters = counts_file.parse(data)
    expected = sorted({at + 2 * i for at, count in starts for i in range(count)})
    assert counters.blocks.addresses(np.arange(len(starts), dtype=np.uint32)).tolist() == expected


def test_the_configuration_says_it_all(tmp_path: Path) -> None:
    config = CountingConfig(
        kernel=0xFFFFFFFF81000200,
        mode=CountingMode.COVERAGE,
        devices=False,
        marks=(CodeMark("a", 0x10), CodeMark("load", 0x20, every=True)),
        spans=(CodeSpan("s", 0x30),),
        owners=(CodeOwner("init", 0x70000000, 0x74000000),),
    )
    lines = plugin.text_of(config).splitlines()
    about = plugin.processor(named("x86_64"))
    assert lines[: len(about)] == about
    assert about[:3] == ["architecture x86_64", "target x86_64", "half ffff800000000000"]
    assert {"prefix 66 ff", "prefix 40 f0 half", "port e4 fc", "at-once fee00000"} < set(about)
    assert lines[len(about) :] == [
        "mode coverage",
        "devices off",
        "kernel ffffffff81000200",
        "owner init 70000000 74000000",
        "mark a 10 once",
        "mark load 20 every",
        "span s 30",
    ]
    (tmp_path / "plugin.counts").write_bytes(b"of an earlier boot")
    prepared = plugin.prepare(Path("/x,y.so"), config, tmp_path)
    assert prepared.config.read_text() == plugin.text_of(config)
    assert not prepared.out.exists()
    assert prepared.option().startswith("/x,,y.so,config=")


def test_the_configuration_counts_guests_where_it_is_asked_to() -> None:
    config = CountingConfig(
        marks=(CodeMark("in", ENTRY), CodeMark("init", 0x10, in_guest=True), CodeMark("own", 0x10)),
        spans=(CodeSpan("s", 0x30, in_guest=True),),
        guests=True,
        guest_kernel=0xFFFFFFFF81000200,
    )
    lines = plugin.text_of(config).splitlines()
    assert lines[len(plugin.processor(named("x86_64"))) :] == [
        "mode counts",
        "devices on",
        "guest-entry 0f01d8",
        "guest-kernel ffffffff81000200",
        "mark in entry once",
        "mark init 10 once guest",
        "mark own 10 once",
        "span s 30 guest",
    ]
    assert "guest" not in plugin.text_of(CountingConfig())
    with pytest.raises(VmtailorError, match="riscv64 cannot be counted apart"):
        plugin.text_of(CountingConfig(architecture="riscv64", guests=True))


def guest(tag: bytes, *rows: GuestTotals) -> bytes:
    return chunk(tag, len(rows), b"".join(struct.pack("<4Q", r.early, r.kernel, r.user, r.entries) for r in rows))


def test_a_guest_is_read_beside_its_host() -> None:
    first, second, last = GuestTotals(1, 2, 3, 4), GuestTotals(1, 3, 4, 5), GuestTotals(1, 12, 13, 14)
    data = (
        HEAD
        + step(0, Totals(early=10), [(0, 0)] * 3, [], [])
        + guest(b"VIRT", GuestTotals())
        + chunk(b"SPAN", 1, span(0, 5))
        + guest(b"VSPN", first)
        + chunk(b"SPAN", 2, span(1, 6) + span(0, 7))
        + guest(b"VSPN", second, last)
        + step(-1, Totals(10, 20, 30), [(0, 0)] * 3, [], [])
        + guest(b"VIRT", last)
        + chunk(b"END.", 0, b"")
    )
    counters = counts_file.parse(data)
    assert counters.guests and not counts_file.parse(BOOT).guests
    # As numbers of the language: what is saved of them must be encodable.
    assert {type(value) for one in counters.spans for value in (one.at.early, one.at.kernel, one.at.user)} == {int}
    assert [one.at for one in counters.spans] == [
        Totals(kernel=5, guest=first), Totals(kernel=6, guest=second), Totals(kernel=7, guest=last)
    ]  # fmt: skip
    before, after = (one.at_end for one in counters.stretches)
    assert after.executed == 60 + 26
    assert after.since(before) == Totals(0, 20, 30, guest=last)
    assert last.since(second) == GuestTotals(0, 9, 9, 9)


@pytest.mark.parametrize(
    "data",
    [
        guest(b"VIRT", GuestTotals()),
        guest(b"VSPN", GuestTotals()),
        step(-1, Totals(), [(0, 0)] * 3, [], []) + guest(b"VIRT"),
        step(-1, Totals(), [(0, 0)] * 3, [], []) + chunk(b"VIRT", 1, bytes(31)),
    ],
)
def test_a_guest_without_its_host_is_damage(data: bytes) -> None:
    with pytest.raises(UserInputError, match="damaged"):
        counts_file.parse(HEAD + data)


@pytest.mark.parametrize("name", ["", "two words", "line\nfeed", "a#b", "x" * 201])
def test_names_that_would_break_the_configuration_are_refused(name: str) -> None:
    with pytest.raises(VmtailorError):
        plugin.text_of(CountingConfig(marks=(CodeMark(name, 1),)))


def test_the_kernel_begins_at_its_mark() -> None:
    assert "kernel 77" in plugin.text_of(CountingConfig(marks=(CodeMark("start_kernel", 0x77),))).splitlines()
    assert "kernel" not in plugin.text_of(CountingConfig(marks=(CodeMark("x", 0x77),)))


def test_too_many_owners_are_refused() -> None:
    with pytest.raises(VmtailorError, match="14 owners"):
        plugin.text_of(CountingConfig(owners=tuple(CodeOwner(f"o{i}", i, i + 1) for i in range(15))))


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserInputError, match="left no file"):
        counts_file.read(tmp_path / "none")
    with pytest.raises(UserInputError, match="not a file of the plugin"):
        counts_file.parse(b"something else")


def test_activities_have_spans_where_the_kernel_has_both_ends() -> None:
    table = SymbolTable.parse("ffffffff81000300 T call_usermodehelper_exec\nffffffff81000400 t free_modprobe_argv\n"
                              "ffffffff81000500 T alg_test\n")  # fmt: skip
    assert [(s.name, s.address & 0xFFFF) for s in analysis.activity_spans(table)] == [
        ("helpers<", 0x300),
        ("helpers>", 0x400),
    ]
