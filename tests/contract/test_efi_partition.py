# SPDX-License-Identifier: Apache-2.0
"""FAT file systems as mtools make them are read from their bytes, with the entries that systemd-boot has there."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.fakes import loader_disks, systems
from tests.fakes.systems import MIB, RELEASE, patched, tool

from vmtailor.analysis.systems.root import RootTree
from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError
from vmtailor.drivers.disks.disk_tree import DiskTree
from vmtailor.drivers.disks.fat_tree import FatTree
from vmtailor.drivers.disks.stretches import whole
from vmtailor.pipeline.systems import subjects

pytestmark = pytest.mark.contract

LONG = "a name that is longer than eight and three.conf"


def fat(folder: Path, size_mib: int, *more: str) -> Path:
    """A file system with a long file, an empty one, and many names in a folder."""
    made, content = folder / "fat", folder / "content"
    with made.open("wb") as file:
        file.truncate(size_mib * MIB)
    tool("mformat", "-i", made, *more, "::")
    content.write_bytes(random.Random(1).randbytes(300_000))
    empty = folder / "empty"
    empty.touch()
    tool("mmd", "-i", made, "::/loader", "::/loader/entries")
    tool("mcopy", "-i", made, content, "::/LINUX")
    tool("mcopy", "-i", made, content, f"::/loader/{LONG}")
    for number in range(40):
        tool("mcopy", "-i", made, empty, f"::/loader/entries/entry-{number}.conf")
    return made


def tree_of(made: Path) -> RootTree:
    return RootTree(DiskTree(FatTree(whole(made, made.stat().st_size, "fat")), "fat"))


@pytest.mark.parametrize(("size_mib", "more"), [(3, ()), (16, ()), (64, ("-F",))], ids=["12", "16", "32"])
def test_every_file_of_a_fat_is_read(size_mib: int, more: tuple[str, ...], tmp_path: Path) -> None:
    root = tree_of(fat(tmp_path, size_mib, *more))
    content = (tmp_path / "content").read_bytes()
    assert set(root.names("/")) == {"LINUX", "loader"} and set(root.names("/loader")) == {LONG, "entries"}
    assert set(root.names("/loader/entries")) == {f"entry-{number}.conf" for number in range(40)}
    assert root.read("/LINUX", MIB) == root.read(f"/loader/{LONG}", MIB) == content
    assert root.begin("/LINUX", 100) == content[:100] and root.read("/loader/entries/entry-0.conf", MIB) == b""


def test_a_fat_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    made = fat(tmp_path, 16)
    with pytest.raises(UserInputError, match="makes no sense"):
        tree_of(patched(made, 13, b"\3"))


@pytest.mark.parametrize("seed", range(6))
def test_a_hostile_fat_is_read_or_refused_in_words(seed: int, tmp_path: Path) -> None:
    made, chance = fat(tmp_path, 3), random.Random(seed)
    with made.open("r+b") as file:
        for _ in range(300):
            file.seek(64 + chance.randrange(40_000))
            file.write(chance.randbytes(chance.choice((1, 2, 4))))
    try:
        root = tree_of(made)
        for path, _ in list(root.walk("/"))[:200]:
            root.begin(f"/{path}", 64)
    except UserInputError as error:
        assert "fat" in error.message


def test_entries_of_systemd_boot_are_read_from_its_partition(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(place / "tmp"))
    root = systems.tree(place / "tree")
    (root / "boot/grub/grub.cfg").unlink()
    (root / "efi").mkdir()
    disk = loader_disks.systemd_boot_disk(place / "disk.raw", root, RELEASE, "root=/dev/vda2 ro quiet", size_mib=16)
    with subjects.opened(f"disk:{disk}", Store()) as found:
        entry = found.subject.entry
        assert entry is not None and (entry.title, entry.words) == ("Old", ("root=/dev/vda2", "ro", "quiet"))
        assert entry.kernel == "/efi/old/linux" and found.root.read(entry.initrd[0], MIB) == b"i" * 3000
    assert not [*(place / "tmp").iterdir()]
