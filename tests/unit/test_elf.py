# SPDX-License-Identifier: Apache-2.0
"""ELF files of this host, read by the library; damaged ones are no ELF files, whatever is wrong in them."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.base import natives
from vmtailor.base.files import elf
from vmtailor.base.files.elf import interpreter_of


def with_endless_names(symbols: int, length: int) -> bytes:
    """A file whose symbols all have one name of that length."""
    names, table = b"\0" + b"a" * length + b"\0", struct.pack("<IBBHQQ", 1, 0, 0, 0, 5, 0) * symbols
    rows = [(0, 0, 0, 0, 0), (3, 64, len(names), 0, 0), (2, 64 + len(names), len(table), 1, 24)]
    headers = b"".join(struct.pack("<IIQQQQIIQQ", 0, kind, 0, 0, *rest, 0, 1, size) for kind, *rest, size in rows)
    at = 64 + len(names) + len(table)
    head = struct.pack("<HHIQQQIHHHHHH", 1, 62, 1, 0, 0, at, 0, 64, 0, 0, 64, len(rows), 1)
    return b"\x7fELF\x02\x01\x01" + bytes(9) + head + names + table + headers


def test_a_program_of_this_host() -> None:
    data = Path(sys.executable).resolve().read_bytes()
    loader = elf.interpreter(data)
    assert Path(loader).exists() and loader == interpreter_of(data[:8192])
    assert elf.section(data, ".text") and elf.section(data, ".nothing") == b""
    assert elf.section(data, ".interp").rstrip(b"\0").decode() == loader


def test_our_own_symbols_are_those_that_the_library_reads() -> None:
    data = natives.locate().init.read_bytes()
    assert elf.interpreter(data) == ""
    found = elf.read(data, lambda file: file.get_section_by_name(".symtab"))
    assert found is not None
    assert natives.elf_symbols(data) == {one.name: one["st_value"] for one in found.iter_symbols()}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "data", [b"", b"#!/bin/sh\n", b"\x7fELF\x01\x01\x01" + bytes(60), b"\x7fELF\x02\x02\x01" + bytes(80)]
)
def test_what_is_no_such_file(data: bytes) -> None:
    assert elf.interpreter(data) == "" and elf.section(data, ".text") == b""
    with pytest.raises(elf.NoElf):
        elf.read(data, lambda file: file.num_sections())


@given(st.binary(max_size=400), st.integers(0, 200))
def test_damaged_files_have_nothing(noise: bytes, at: int) -> None:
    whole = with_endless_names(1, 100)
    damaged = whole[:at] + noise + whole[at + len(noise) :]
    for data in (damaged, b"\x7fELF\x02\x01\x01" + noise):
        assert isinstance(elf.section(data, ".text"), bytes) and isinstance(elf.interpreter(data), str)


@pytest.mark.attack
def test_names_without_an_end_cost_a_stranger_nothing() -> None:
    """An init of somebody else's bundle: the library would read three megabytes for each of 100,000 symbols."""
    assert natives.elf_symbols(with_endless_names(100_000, 3 << 20)) == {}
