# SPDX-License-Identifier: Apache-2.0
"""A root file system in a folder that changes while it is read, or is more than a folder should be."""

from __future__ import annotations

import os
import stat
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fakes.tars import read_flat

from vmtailor.base.errors import UserInputError
from vmtailor.drivers.image import root_directory
from vmtailor.drivers.image.allowance import ImageLimits, TooLarge
from vmtailor.drivers.image.root_directory import archive_directory

pytestmark = pytest.mark.attack


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "root"
    made.mkdir()
    (made / "a").write_bytes(b"1" * 1000)
    (made / "b").write_bytes(b"2" * 1000)
    return made


def test_attributes_that_linux_keeps_and_others(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists of who may do what are kept; marks of overlays and of this host's security are not, and not counted."""
    acl = struct.pack("<I", 2) + struct.pack("<HHI", 1, 6, 2**32 - 1) * 3
    found = {
        "user.a": b"\xff", "system.posix_acl_access": acl, "system.nfs4_acl": b"x" * 80, "security.selinux": b"y",
        "trusted.overlay.opaque": b"y",
    }  # fmt: skip
    monkeypatch.setattr(os, "listxattr", lambda path, **_: list(found) if path.name == "a" else [])
    monkeypatch.setattr(os, "getxattr", lambda path, name, **_: found[name])
    archived = archive_directory(root, tmp_path / "flat.tar")
    headers = read_flat(tmp_path / "flat.tar")["a"][0].pax_headers
    kept = {name: value.encode("utf-8", "surrogateescape") for name, value in headers.items() if "xattr" in name}
    assert kept == {"SCHILY.xattr.user.a": b"\xff", "SCHILY.xattr.system.posix_acl_access": acl}
    assert archived.left_out == ("attribute 'system.nfs4_acl' of 1 file (Linux has no place for it)",)


def meanwhile(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """Do it after the status of the files is known, before they are opened."""
    real = root_directory._walk

    def walk(folder: Path) -> object:
        found = list(real(folder))
        change()
        return iter(found)

    monkeypatch.setattr(root_directory, "_walk", walk)


def test_pipes_and_devices_are_entries_and_never_opened(root: Path, tmp_path: Path) -> None:
    os.mkfifo(root / "pipe")
    if os.geteuid() == 0:
        os.mknod(root / "zero", stat.S_IFCHR | 0o600, os.makedev(1, 5))
    archive_directory(root, tmp_path / "flat.tar")
    flat = read_flat(tmp_path / "flat.tar")
    assert flat["pipe"][0].type == tarfile.FIFOTYPE and flat["a"][1] == b"1" * 1000
    assert os.geteuid() != 0 or flat["zero"][0].type == tarfile.CHRTYPE


def test_a_file_that_grows_is_taken_as_it_was(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meanwhile(monkeypatch, lambda: (root / "a").write_bytes(b"1" * 5000))
    archive_directory(root, tmp_path / "flat.tar")
    assert read_flat(tmp_path / "flat.tar")["a"][1] == b"1" * 1000


@pytest.mark.parametrize("change", ["vanishes", "shrinks", "pipe", "link", "folder"])
def test_what_changes_is_said(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    def act() -> None:
        if change == "shrinks":
            (root / "a").write_bytes(b"")
            return
        (root / "a").unlink()
        if change == "pipe":
            os.mkfifo(root / "a")
        elif change == "link":
            (root / "a").symlink_to("/etc/hostname")
        elif change == "folder":
            (root / "a").mkdir()

    meanwhile(monkeypatch, act)
    with pytest.raises(UserInputError, match=r"/a (changed while it was read|cannot be read)") as caught:
        archive_directory(root, tmp_path / "flat.tar")
    assert caught.value.hint


def test_a_folder_behind_a_link(root: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(root)
    assert archive_directory(tmp_path / "link", tmp_path / "one.tar") == archive_directory(root, tmp_path / "two.tar")


def test_more_than_the_limits(root: Path, tmp_path: Path) -> None:
    with pytest.raises(TooLarge, match="more than 1999 bytes"):
        archive_directory(root, tmp_path / "flat.tar", ImageLimits(unpacked_bytes=1999))
    with pytest.raises(TooLarge, match="more than 1 entries"):
        archive_directory(root, tmp_path / "flat.tar", ImageLimits(entries=1))
    assert archive_directory(root, tmp_path / "flat.tar", ImageLimits(entries=2, unpacked_bytes=2000)).entries == 2
    (root / "huge").touch()
    os.truncate(root / "huge", 1 << 40)
    with pytest.raises(TooLarge, match="more than 16G"):
        archive_directory(root, tmp_path / "flat.tar")
