# SPDX-License-Identifier: Apache-2.0
"""Initcalls that a kernel without KALLSYMS logs by address get their names from the table beside the log."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.unit.bootlog.reading import call, codes, timeline_of

from vmtailor.analysis.bootlog import kernel_build
from vmtailor.analysis.bootlog.formats import is_symbols
from vmtailor.analysis.bootlog.log_lines import Content

BEGIN = 0xFFFFFFFF81000000
NAMES = tuple(f"part_{number}_init" for number in range(12))
#: Where they are: at distances that no two of them share.
PLACES = tuple(BEGIN + 0x200 * number * number + 0x40 for number in range(len(NAMES)))


def table(*more: str) -> str:
    head = ["0000000000000000 D __per_cpu_start", f"{BEGIN:016x} T startup_64", f"{BEGIN:016x} T _stext"]
    rows = [f"{at:016x} t {name}" for at, name in zip(PLACES, NAMES, strict=True)]
    return "\n".join([*head, *rows, f"{BEGIN + 0x900000:016x} d a_table", *more]) + "\n"


def log(moved: int = 0, places: tuple[int, ...] = PLACES) -> str:
    lines = ["[    0.000000] Linux version 6.12.9 (gcc) #1"]
    for number, at in enumerate(places):
        lines.append(f"[    0.{number + 1:02}0000] calling  0x{at + moved:016x} @ 1")
        lines.append(f"[    0.{number + 1:02}2000] initcall 0x{at + moved:016x} returned 0 after 2000 usecs")
    return "\n".join([*lines, "[    0.900000] Run /sbin/init as init process"]) + "\n"


def test_initcalls_have_the_tables_names(tmp_path: Path) -> None:
    timeline = timeline_of(tmp_path, log(), table())
    assert [one.name for one in timeline.initcalls] == list(NAMES)
    assert call(timeline, "part_3_init").duration_us == 2000
    assert [file.format for file in timeline.files][1] == "symbols of a kernel"
    assert "different-boots" not in codes(timeline)


def test_a_kernel_that_was_moved_is_known_by_its_first_initcalls(tmp_path: Path) -> None:
    timeline = timeline_of(tmp_path, table(), log(moved=0x1A00000))
    assert [one.name for one in timeline.initcalls] == list(NAMES)


def test_a_modules_initcalls_keep_their_addresses(tmp_path: Path) -> None:
    module = 0xFFFFFFFFC0201000
    timeline = timeline_of(tmp_path, log(places=(*PLACES, module)), table())
    assert timeline.initcalls[-1].name == f"0x{module:016x}"
    assert timeline.initcalls[0].name == NAMES[0]
    assert "different-boots" not in codes(timeline)


def test_another_kernels_table_is_said_and_names_nothing(tmp_path: Path) -> None:
    timeline = timeline_of(tmp_path, log(places=tuple(at + 0x13 * at % 0xFF1 for at in PLACES)), table())
    assert all(one.name.startswith("0x") for one in timeline.initcalls)
    assert "different-boots" in codes(timeline)


def test_a_table_beside_a_log_with_names_changes_nothing(tmp_path: Path) -> None:
    named = log().replace(f"0x{PLACES[0]:016x}", "pci_init+0x0/0x10")
    for place, name in zip(PLACES[1:], NAMES[1:], strict=True):
        named = named.replace(f"0x{place:016x}", f"{name}+0x0/0x10")
    timeline = timeline_of(tmp_path, named, table())
    assert timeline.initcalls[0].name == "pci_init"
    assert "different-boots" not in codes(timeline)


def test_of_several_names_the_one_that_marks_no_section_is_shown() -> None:
    assert kernel_build.parse_symbols(table().encode().split(b"\n"))[BEGIN] == "startup_64"
    swapped = [f"{BEGIN:016x} T {name}".encode() for name in ("_stext", "startup_64", "later")]
    assert kernel_build.parse_symbols(swapped)[BEGIN] == "startup_64"


@pytest.mark.parametrize(
    "text",
    [
        table(),
        table().replace(" t part_0_init", " t part_0_init\t[a_module]"),
        "\n".join(f"c000{number:04x} T name_{number}" for number in range(9)),
    ],
    ids=["System.map", "kallsyms", "32 bit"],
)
def test_tables_are_recognised(text: str) -> None:
    assert is_symbols(Content("file", iter([text.encode()])))


@pytest.mark.parametrize("text", ["", "deadbeef T one\n", log(), "12345678 h line\n" * 9])
def test_what_is_no_table_is_not(text: str) -> None:
    assert not is_symbols(Content("file", iter([text.encode()])))


def test_zeros_name_nothing() -> None:
    hidden = [f"0000000000000000 t name_{number}".encode() for number in range(20)]
    assert kernel_build.parse_symbols(hidden) == {}


def test_a_hostile_table_takes_no_time(tmp_path: Path) -> None:
    rows = "".join(f"{BEGIN + (number << 16):016x} t n{number}\n" for number in range(200_000))
    began = time.process_time()
    timeline_of(tmp_path, log(places=tuple(BEGIN + (number << 16) + 1 for number in range(5000))), rows)
    assert time.process_time() - began < 20
