# SPDX-License-Identifier: Apache-2.0
"""Digests of files with holes are those of their content."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.base.files.digests import sha256_of, sha256_of_rest

UNIT = 1 << 16


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 40)), max_size=6), st.integers(0, 3 * UNIT), st.integers(0, 9))
def test_holes_are_zeros(
    tmp_path_factory: pytest.TempPathFactory, parts: list[tuple[bool, int]], rest: int, start: int
) -> None:
    path = tmp_path_factory.mktemp("sparse") / "disk"
    with path.open("wb") as file:
        for filled, units in parts:
            if filled:
                file.write(os.urandom(units * UNIT))
            else:
                file.seek(units * UNIT, os.SEEK_CUR)
        file.truncate(file.tell() + rest)
    content = path.read_bytes()
    assert sha256_of(path) == hashlib.sha256(content).hexdigest()
    with path.open("rb") as opened:
        opened.read(start)
        assert sha256_of_rest(opened) == hashlib.sha256(content[start:]).hexdigest()
        assert opened.read() == b"" and opened.tell() == len(content)


def test_a_file_with_holes_is_read_where_it_has_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "disk"
    with path.open("wb") as file:
        file.write(b"a" * UNIT)
        file.truncate(1 << 30)
    if path.stat().st_blocks * 512 > 1 << 20:
        pytest.skip("this file system has no holes")
    pread, sizes = os.pread, []

    def counted(descriptor: int, size: int, at: int) -> bytes:
        found = pread(descriptor, size, at)
        sizes.append(len(found))
        return found

    monkeypatch.setattr(os, "pread", counted)
    assert len(sha256_of(path)) == 64 and UNIT <= sum(sizes) <= 1 << 20


def test_a_file_system_that_cannot_tell_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "disk"
    with path.open("wb") as file:
        file.seek(3 * UNIT)
        file.write(b"a" * UNIT)
        file.truncate(9 * UNIT)
    lseek = os.lseek

    def refused(descriptor: int, at: int, what: int) -> int:
        if what in (os.SEEK_DATA, os.SEEK_HOLE):
            raise OSError(errno.EINVAL, "cannot tell")
        return lseek(descriptor, at, what)

    monkeypatch.setattr(os, "lseek", refused)
    assert sha256_of(path) == hashlib.sha256(path.read_bytes()).hexdigest()
