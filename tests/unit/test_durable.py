# SPDX-License-Identifier: Apache-2.0
"""Finished files get their names once their content is on the disk, and where that fails the old ones stay."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from vmtailor.base.cache.store import Store, writing
from vmtailor.base.errors import HostError
from vmtailor.base.files import durable
from vmtailor.base.files.regular_files import write_atomic


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is done, in its order: `disk NAME` for content that is waited for, `name NAME` for a new name."""
    done: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def waited(descriptor: int) -> None:
        done.append(f"disk {Path(os.readlink(f'/proc/self/fd/{descriptor}')).name}")  # noqa: PTH115
        fsync(descriptor)

    def renamed(path: Path, target: Path) -> Path:
        done.append(f"name {target.name}")
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", waited)
    monkeypatch.setattr(Path, "replace", renamed)
    return done


def test_a_file_is_on_the_disk_before_its_name_and_its_name_before_we_go_on(tmp_path: Path, seen: list[str]) -> None:
    write_atomic(tmp_path / "record", b"new")
    assert seen[0].startswith("disk .record.") and seen[1:] == ["name record", f"disk {tmp_path.name}"]


def test_of_an_entry_of_the_cache_every_file_and_folder_is(tmp_path: Path, seen: list[str]) -> None:
    def fill(folder: Path) -> None:
        (folder / "in").mkdir()
        (folder / "in/deep").write_text("1")
        (folder / "flat").write_text("2")
        (folder / "link").symlink_to("/dev/full")

    Store(tmp_path / "cache").get("kind", "ab" * 20, fill)
    before, after = seen[: (at := seen.index(f"name {'ab' * 20}"))], seen[at + 1 :]
    assert set(before[:2]) == {"disk deep", "disk flat"} and before[2] == "disk in"
    assert before[3].startswith("disk .filling-") and len(before) == 4 and after == ["disk kind"]


def test_a_tree_of_many_files_is_waited_for_by_its_file_system(
    tmp_path: Path, seen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    call = durable._call

    def noted(name: str, *words: object) -> None:
        calls.append(name)
        call(name, *words)

    monkeypatch.setattr(durable, "_call", noted)
    files = {f"file{number}": b"x" for number in range(100)}
    found = Store(tmp_path / "cache").get("kind", "ab" * 20, writing(files))
    assert len(list(found.iterdir())) == 100
    assert calls == ["syncfs"] and seen == [f"name {'ab' * 20}", "disk kind"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_content_that_does_not_reach_the_disk_gets_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fails(_: int) -> None:
        raise OSError(number, os.strerror(number))

    write_atomic(tmp_path / "record", b"old")
    store = Store(tmp_path / "cache")
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fails)
        with pytest.raises(OSError, match="record"):
            write_atomic(tmp_path / "record", b"new")
        with pytest.raises(OSError if number == errno.EIO else HostError):
            store.get("kind", "ab" * 20, writing({"a": b"1"}))
    assert (tmp_path / "record").read_bytes() == b"old" and not store.has("kind", "ab" * 20)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "record"]
    assert list((tmp_path / "cache/kind").iterdir()) == []


def test_a_file_system_that_keeps_nothing_on_a_disk_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cannot(_: int) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(os, "fsync", cannot)
    write_atomic(tmp_path / "record", b"new")
    assert (tmp_path / "record").read_bytes() == b"new"


def test_folders_are_exchanged_in_one_step_or_in_three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "was").write_text(name)
    for step in (durable._exchanged, lambda *_: False):
        monkeypatch.setattr(durable, "_exchanged", step)
        was = [(tmp_path / name / "was").read_text() for name in ("one", "other")]
        durable.exchange(tmp_path / "one", tmp_path / "other")
        assert [(tmp_path / name / "was").read_text() for name in ("other", "one")] == was
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "other"]
