# SPDX-License-Identifier: Apache-2.0
"""Copies of disk images keep their content and their holes."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vmtailor.base.files.holes import copy_with_holes, has_room

#: Where a file has content: megabyte, and how much of it.
STRETCHES = st.lists(st.tuples(st.integers(0, 15), st.integers(1, 5000)), max_size=5)


def sparse(path: Path, stretches: list[tuple[int, int]], size: int) -> None:
    with path.open("wb") as file:
        file.truncate(size)
        for at, length in stretches:
            os.pwrite(file.fileno(), os.urandom(length), at << 20)


@settings(max_examples=15, deadline=None)
@given(stretches=STRETCHES, more=st.integers(0, 1 << 20))
def test_a_copy_has_the_same_content_and_takes_no_more_room(
    tmp_path_factory: pytest.TempPathFactory, stretches: list[tuple[int, int]], more: int
) -> None:
    folder = tmp_path_factory.mktemp("holes")
    source, target = folder / "a", folder / "b"
    sparse(source, stretches, (16 << 20) + more)
    copy_with_holes(source, target)
    assert source.read_bytes() == target.read_bytes()
    assert target.stat().st_blocks <= source.stat().st_blocks + 16


def test_without_references_between_files_the_bytes_are_read_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EXDEV, "other file system")

    sparse(tmp_path / "a", [(3, 4000)], 8 << 20)
    monkeypatch.setattr(os, "copy_file_range", refuse)
    copy_with_holes(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_full_disk_leaves_nothing_and_what_is_there_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no space left on device")

    sparse(tmp_path / "a", [(0, 100)], 1 << 20)
    monkeypatch.setattr(os, "copy_file_range", full)
    with pytest.raises(OSError, match="no space"):
        copy_with_holes(tmp_path / "a", tmp_path / "b")
    assert not (tmp_path / "b").exists()
    (tmp_path / "b").write_bytes(b"mine")
    with pytest.raises(FileExistsError):
        copy_with_holes(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == b"mine"


def test_a_copy_needs_room_for_its_content_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = tmp_path / "disk"
    sparse(disk, [(0, 5000), (9, 5000)], 1 << 40)
    needed = disk.stat().st_blocks * 512
    for free, fits in ((needed, True), (needed - 1, False)):
        monkeypatch.setattr("shutil.disk_usage", lambda _, free=free: SimpleNamespace(free=free))
        monkeypatch.setattr("fcntl.ioctl", refuse)
        assert has_room(disk, tmp_path) is fits
    monkeypatch.setattr("fcntl.ioctl", lambda *_: 0)  # a file system that copies by reference
    assert has_room(disk, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["disk"]


def refuse(*_: object) -> int:
    raise OSError(errno.EOPNOTSUPP, "not here")
