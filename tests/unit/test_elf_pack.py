# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools
import re
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vmtailor.base.errors import BuildError
from vmtailor.drivers.kernel import elf_pack

BASE = 0xFFFFFFFF81000000
HOLE = elf_pack.MIN_HOLE_BYTES


def elf(body: bytes, memory: int, note: bytes = b"note", align: int = 0x200000) -> bytes:
    """A kernel-like file: one loadable segment at a page of its own, one note inside it."""
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01".ljust(16, b"\0"), 2, 62, 1, 0x1000123, 64, 0, 0, 64, 56, 2, 0, 0, 0
    )
    offset = 4096
    load = struct.pack("<IIQQQQQQ", 1, 5, offset, BASE, 0x1000000, len(body), memory, align)
    notes = struct.pack("<IIQQQQQQ", 4, 4, offset, BASE, 0x1000000, len(note), len(note), 4)
    return (header + load + notes).ljust(offset, b"\0") + body


def loaded(data: bytes) -> dict[int, int]:
    """Memory after loading: physical address → byte, without zeros; breakpoints count as zeros (padding)."""
    memory: dict[int, int] = {}
    for one in elf_pack.read_segments(data)[2]:
        if one.kind == 1:
            body = data[one.offset : one.offset + one.file_size]
            memory |= {
                one.physical + found.start(): found[0][0] for found in re.finditer(rb"[^\x00\xcc]", body, re.DOTALL)
            }
    return memory


# (bytes, how often): long runs are told by their length, or a failing example would be megabytes of text.
PIECES = st.lists(
    st.one_of(
        st.tuples(st.binary(min_size=1, max_size=50), st.just(1)),
        st.tuples(st.sampled_from([b"\0", b"\xcc"]), st.integers(HOLE - 10, 2 * HOLE)),
    ),
    max_size=6,
)


@pytest.mark.lengthy
@settings(deadline=None, max_examples=40)
@given(pieces=PIECES, tail=st.integers(0, 5000))
def test_memory_is_the_same_after_packing(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[tuple[bytes, int]], tail: int
) -> None:
    folder = tmp_path_factory.mktemp("elf")
    body = b"note" + b"".join(piece * count for piece, count in pieces)
    original = elf(body, len(body) + tail)
    (folder / "in").write_bytes(original)
    elf_pack.pack(folder / "in", folder / "out")
    packed = (folder / "out").read_bytes()
    assert loaded(packed) == loaded(original)
    machine, entry, segments = elf_pack.read_segments(packed)
    assert (machine, entry) == (62, 0x1000123)
    loads = [one for one in segments if one.kind == 1]
    assert loads[-1].physical + loads[-1].memory_size == 0x1000000 + len(body) + tail
    assert all(one.offset % one.align == one.virtual % one.align for one in segments)
    assert all(a.physical + a.memory_size <= b.physical for a, b in itertools.pairwise(loads))
    assert len(packed) < len(body) + 4096
    note = next(one for one in segments if one.kind == 4)
    assert note.align == 4


def test_a_long_hole_is_left_out(tmp_path: Path) -> None:
    body = b"code" + b"\xcc" * 1_000_000 + b"more" + bytes(1_000_000) + b"data"
    (tmp_path / "in").write_bytes(elf(body, len(body)))
    elf_pack.pack(tmp_path / "in", tmp_path / "out")
    assert (tmp_path / "out").stat().st_size < 10_000


def test_a_kernel_is_moved_to_where_its_memory_is(tmp_path: Path) -> None:
    """Its own physical addresses begin at another place; the notes lie in the same memory."""
    (tmp_path / "in").write_bytes(elf(b"note" + b"code" * 9, 100))
    elf_pack.pack(tmp_path / "in", tmp_path / "out", 0x80200000)
    _, entry, segments = elf_pack.read_segments((tmp_path / "out").read_bytes())
    assert [(one.virtual, one.physical) for one in segments] == [(BASE, 0x81200000)] * 2
    assert entry == 0x1000123


@pytest.mark.parametrize(
    "data", [b"", b"\x7fELF\x02\x01\x01", b"#!/bin/sh\n" * 50, elf(b"x" * 100, 100)[:4150], elf(b"x", 1)[:100]]
)
def test_a_damaged_kernel_is_a_build_error(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "in").write_bytes(data)
    with pytest.raises(BuildError):
        elf_pack.pack(tmp_path / "in", tmp_path / "out")
