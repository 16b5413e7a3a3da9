# SPDX-License-Identifier: Apache-2.0
"""The cache: filled once, whole or not at all."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from pathlib import Path

import pytest

from vmtailor.base.cache import store
from vmtailor.base.cache.store import Store, cache_root, digest, locked, writing
from vmtailor.base.errors import HostError
from vmtailor.base.files.regular_files import write_atomic


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


def test_a_relative_place_for_caches_is_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As the XDG Base Directory specification asks."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for given in ("", "caches", "./caches", "~/caches"):
        monkeypatch.setenv("XDG_CACHE_HOME", given)
        assert cache_root() == tmp_path / ".cache" / "vmtailor"


def test_a_user_without_a_home_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(HostError, match="no home folder") as caught:
        cache_root()
    assert "XDG_CACHE_HOME" in (caught.value.hint or "")


def modes(root: Path) -> set[tuple[bool, int]]:
    return {(path.is_dir(), stat.S_IMODE(path.lstat().st_mode)) for path in (root, *root.rglob("*"))}


@pytest.mark.attack
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_the_cache_is_its_owner_s_alone_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    def fill(folder: Path) -> None:
        (folder / "sub").mkdir()
        (folder / "sub" / "file").write_text("y")
        (folder / "tool").write_text("#!")
        (folder / "tool").chmod(0o755)
        (folder / "read-only").write_text("")
        (folder / "read-only").chmod(0o444)

    before = os.umask(umask)
    try:
        store = Store(tmp_path / "cache")
        entry = store.get("kind", "key", fill)
        write_atomic(store.folder("memo") / "x.json", b"", private=True)
    finally:
        os.umask(before)
    assert modes(tmp_path / "cache") == {(True, 0o700), (False, 0o600), (False, 0o700)}
    assert stat.S_IMODE((entry / "tool").stat().st_mode) == 0o700


@pytest.mark.attack
def test_what_an_older_version_left_open_is_closed_when_it_is_used(tmp_path: Path) -> None:
    (tmp_path / "kind" / "key").mkdir(parents=True)
    (tmp_path / "kind" / "key" / "x").write_text("")
    for path in (tmp_path / "kind" / "key" / "x", tmp_path / "kind" / "key"):
        path.chmod(0o755)
    assert Store(tmp_path).has("kind", "key")
    assert modes(tmp_path / "kind" / "key") == {(True, 0o700), (False, 0o700)}
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700


@pytest.mark.attack
@pytest.mark.parametrize("whose", [".", "kind", "kind/key"])
def test_what_another_user_owns_in_the_cache_is_not_used(
    tmp_path: Path, whose: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store(tmp_path).get("kind", "key", lambda folder: None)
    if os.geteuid() == 0:
        os.chown(tmp_path / whose, 65534, 65534)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 1)
    for use in (lambda: Store(tmp_path).has("kind", "key"), lambda: Store(tmp_path).get("kind", "key", print)):
        with pytest.raises(HostError, match="belongs to the user") as caught:
            use()
        assert "XDG_CACHE_HOME" in caught.value.hint


@pytest.mark.attack
def test_a_cache_that_another_user_linked_somewhere_is_not_used(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("root makes another user's link here")
    (tmp_path / "real").mkdir()
    (tmp_path / "cache").symlink_to(tmp_path / "real")
    assert Store(tmp_path / "cache").root
    os.chown(tmp_path / "cache", 65534, 65534, follow_symlinks=False)
    with pytest.raises(HostError, match="belongs to the user"):
        _ = Store(tmp_path / "cache").root


def test_who_must_wait_says_for_what_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, held = tmp_path / "locks" / "inner" / "one", []
    with locked(path):
        held.append(os.open(path, os.O_WRONLY))
    fcntl.flock(held[0], fcntl.LOCK_EX)

    def passes(seconds: float) -> None:
        assert 0 < seconds <= 1
        os.close(held.pop())

    monkeypatch.setattr(time, "sleep", passes)
    monkeypatch.setattr(store, "FIRST_SAY_S", 0.0)
    with locked(path, "the same kernel"):
        assert not held
    assert capsys.readouterr().err == "waiting for the same kernel, which another vmtailor has under way\n"


def test_a_wait_that_has_no_name_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "one"
    path.touch()
    held = os.open(path, os.O_WRONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    monkeypatch.setattr(time, "sleep", lambda _: os.close(held))
    with locked(path):
        pass
    assert capsys.readouterr().err == ""


def test_a_key_is_known_by_forty_digits_and_a_folder_is_made_whole(tmp_path: Path) -> None:
    store = Store(tmp_path / "cache")
    key = "ab" * 32
    made = store.get("kind", key, writing({"one": b"1", "two": b"2"}))
    assert made == store.path("kind", key) == tmp_path / "cache" / "kind" / key[:40]
    assert {path.name: path.read_bytes() for path in made.iterdir()} == {"one": b"1", "two": b"2"}
    assert store.has("kind", key) and not store.has("kind", "cd" * 32)
    assert (tmp_path / "cache" / "locks" / f"kind-{key[:40]}").is_file()
