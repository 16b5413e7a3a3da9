# SPDX-License-Identifier: Apache-2.0
"""The cache: filled once, whole or not at all."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from vmtailor.base.errors import HostError
from vmtailor.base.store import Store, cache_root, digest


def test_a_folder_is_filled_once(tmp_path: Path) -> None:
    store, calls = Store(tmp_path), []

    def fill(folder: Path) -> None:
        calls.append(1)
        (folder / "x").write_text("y")

    assert (store.get("kind", "key", fill) / "x").read_text() == "y"
    assert (store.get("kind", "key", fill) / "x").read_text() == "y"
    assert len(calls) == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("no")])
def test_an_interrupted_filling_leaves_nothing(tmp_path: Path, error: BaseException) -> None:
    store = Store(tmp_path)

    def fill(folder: Path) -> None:
        (folder / "half").write_text("y")
        raise error

    with pytest.raises(type(error)):
        store.get("kind", "key", fill)
    assert not store.has("kind", "key")
    assert list((tmp_path / "kind").iterdir()) == []


def test_a_full_disk_is_said_so(tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(HostError, match="no space"):
        Store(tmp_path).get("kind", "key", fill)


def test_digests_tell_lists_apart(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("ab")
    assert digest("ab", "c") != digest("a", "bc")
    assert digest(tmp_path / "f") == digest("ab") == digest(b"ab")


def test_the_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_root() == tmp_path / "vmtailor"
