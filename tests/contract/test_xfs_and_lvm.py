# SPDX-License-Identifier: Apache-2.0
"""XFS as its own mkfs makes it, and LVM volumes that LVM's own tool reads, are read from their bytes."""

from __future__ import annotations

import mmap
import random
import struct
from pathlib import Path

import pytest
from tests.fakes import systems, volumes
from tests.fakes.systems import MIB, RELEASE, ext4, patched, tool
from tests.fakes.volumes import XFS_UUID, Logical

from vmtailor.analysis.systems.root import RootTree
from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError
from vmtailor.drivers.disks.disk_tree import DiskTree
from vmtailor.drivers.disks.stretches import whole
from vmtailor.drivers.disks.xfs import Xfs
from vmtailor.model.systems.system import LinearVolume, System
from vmtailor.pipeline.systems import subjects

pytestmark = pytest.mark.contract

#: Names in a folder, so that it takes each of XFS's forms: in the inode, one block, leaves, nodes.
FOLDERS = {"few": 3, "block": 60, "leaf": 700, "node": 4000}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("xfs") / "tree"
    root.mkdir()
    for name, count in FOLDERS.items():
        for number in range(count):
            systems.put(root, f"{name}/{number}-{'x' * (number % 40)}", b"%d" % number * (number % 7))
    (root / "empty").mkdir()
    systems.put(root, "big", random.Random(1).randbytes(5 * MIB))
    systems.put(root, "link", "-> few/1-x")
    return root


@pytest.mark.parametrize("more", [(), ("-n", "size=16384"), ("-b", "size=1024"), ("-m", "crc=0")], ids=str)
def test_every_file_of_an_xfs_is_read(more: tuple[str, ...], tree: Path, tmp_path: Path) -> None:
    made = volumes.xfs(tmp_path / "fs", tree, more=more)
    root = RootTree(DiskTree(Xfs(whole(made, made.stat().st_size, "fs")), "fs"))
    for folder in (".", *FOLDERS, "empty"):
        names = root.names(f"/{folder}")
        assert set(names) == {path.name for path in (tree / folder).iterdir()}
        sizes = {name: (tree / folder / name).stat().st_size for name in names if (tree / folder / name).is_file()}
        assert {name: names[name].size for name in sizes if not (tree / folder / name).is_symlink()} == {
            name: size for name, size in sizes.items() if not (tree / folder / name).is_symlink()
        }
    assert root.read("/big", 8 * MIB) == (tree / "big").read_bytes() and root.target("/link") == "few/1-x"
    assert root.begin("/big", 5000) == (tree / "big").read_bytes()[:5000]
    assert root.read("/link", MIB) == (tree / "few/1-x").read_bytes()
    with pytest.raises(UserInputError, match="more than vmtailor reads"):
        root.read("/big", MIB)


def test_an_xfs_that_was_not_unmounted_is_refused(tree: Path, tmp_path: Path) -> None:
    """The log's one record says that it is the last of a mount."""
    made = volumes.xfs(tmp_path / "fs", tree)
    size = made.stat().st_size
    Xfs(whole(made, size, "fs"))
    with made.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
        at = data.find(b"\xfe\xed\xba\xbe")
    patched(made, at + 512 + 9, b"\x01")
    with pytest.raises(UserInputError, match="not cleanly unmounted"):
        Xfs(whole(made, size, "fs"))


@pytest.mark.parametrize(
    ("at", "data", "why"),
    [
        (0, b"XFSX", "is not an XFS"), (4, struct.pack(">I", 3000), "makes no sense"),
        (88, struct.pack(">I", 1 << 30), "makes no sense"), (216, struct.pack(">I", 1 << 30), "unknown features"),
        (216, struct.pack(">I", 0x11), "needs repair"), (48, bytes(8), "its log on another disk"),
        (56, struct.pack(">Q", 1 << 50), "beyond its end"),
    ],
)  # fmt: skip
def test_an_xfs_that_makes_no_sense_is_refused(at: int, data: bytes, why: str, tree: Path, tmp_path: Path) -> None:
    made = patched(volumes.xfs(tmp_path / "fs", tree), at, data)
    with pytest.raises(UserInputError, match=why):
        RootTree(DiskTree(Xfs(whole(made, made.stat().st_size, "fs")), "fs")).names("/")


@pytest.mark.parametrize("seed", range(8))
def test_a_hostile_xfs_is_read_or_refused_in_words(seed: int, tree: Path, tmp_path: Path) -> None:
    """Bytes of its inodes and directories are others."""
    made = volumes.xfs(tmp_path / "fs", tree)
    chance = random.Random(seed)
    with made.open("r+b") as file:
        for _ in range(400):
            file.seek(chance.choice((4096 * chance.randrange(16), MIB * chance.randrange(40))) + chance.randrange(8192))
            file.write(chance.randbytes(chance.choice((1, 2, 8))))
    try:
        root = RootTree(DiskTree(Xfs(whole(made, made.stat().st_size, "fs")), "fs"))
        for path, _ in list(root.walk("/"))[:300]:
            root.begin(f"/{path}", 64)
    except UserInputError as error:
        assert "fs" in error.message


def read(path: Path) -> System:
    with subjects.opened(f"disk:{path}", Store()) as found:
        return found.subject


def enterprise(folder: Path, **how: object) -> Path:
    """A disk with /boot of its own and the root on a volume, both XFS."""
    made = systems.tree(folder / "tree", separate_boot=True)
    table = made / "etc/fstab"
    boot_line = f"UUID={XFS_UUID} /boot xfs defaults 0 0\n"
    table.write_text(f"/dev/mapper/el--test-root / xfs defaults 0 0\n{boot_line}/dev/el-test/home /home xfs x 0 0\n")
    (folder / "boot").mkdir()
    boot = volumes.xfs(folder / "boot.xfs", systems.boot_tree(folder / "boot"))
    return volumes.enterprise_disk(folder / "disk.raw", volumes.xfs(folder / "root.xfs", made), boot, **how)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("segments", "ring"), [((), 0), ((30, 20, 25), 0), ((75,), 1040384)], ids=["one", "pieces", "text around the end"]
)
def test_a_disk_as_an_enterprise_linux_lays_it_out_is_read(
    segments: tuple[int, ...], ring: int, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(place / "tmp"))
    found = read(enterprise(place, segments=segments, ring=ring))
    assert found.kernel == RELEASE and found.entry is not None and found.entry.kernel == f"/boot/vmlinuz-{RELEASE}"
    disk = found.disk
    assert disk is not None and (disk.root, disk.boot) == (3, 2)
    assert (disk.root_volume, disk.root_type) == ("el-test/root", "xfs")
    volume = disk.volume
    assert isinstance(volume, LinearVolume) and volume.mapped_name == "el--test-root" and volume.uuid == XFS_UUID
    assert len(volume.segments) == max(1, len(segments)) and volume.size_bytes == 75 * volumes.EXTENT
    assert any("/home is on /dev/el-test/home" in note for note in found.notes)


def test_an_ext4_in_pieces_is_joined_for_the_tool_that_reads_it(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(place / "tmp"))
    root = ext4(place / "root", systems.tree(place / "tree"), size_mib=32)
    found = read(volumes.enterprise_disk(place / "disk.raw", root, None, segments=(3, 5)))
    assert found.kernel == RELEASE and found.disk is not None and found.disk.root_type == "ext4"
    assert not any((place / "tmp").iterdir())


def test_lvms_own_tool_reads_the_same(tmp_path: Path) -> None:
    content = tmp_path / "content"
    content.write_bytes(bytes(MIB))
    made = tmp_path / "physical"
    with made.open("wb") as file:
        file.truncate(200 * MIB)
    volumes.physical_volume(made, 0, 200 * MIB, [Logical("root", content, (3, 4))])
    told = tool("pvck", "--dump", "metadata", made).decode()
    assert "extent_count = 4" in told and "el-test" in told


@pytest.mark.parametrize(("kind", "why"), [("thin", "is a thin volume"), ("raid1", "of the kind raid1")])
def test_a_volume_that_is_not_linear_is_refused_by_name(
    kind: str, why: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(place / "tmp"))
    root = ext4(place / "root", systems.tree(place / "tree"), size_mib=32)
    disk = place / "disk.raw"
    with disk.open("wb") as file:
        file.truncate(100 * MIB)
    volumes.physical_volume(disk, 0, 100 * MIB, [Logical("root", root, (8,), kind)])
    with pytest.raises(UserInputError, match=why):
        read(disk)


def test_damaged_metadata_of_lvm_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(place / "tmp"))
    root = ext4(place / "root", systems.tree(place / "tree"), size_mib=32)
    made = volumes.enterprise_disk(place / "disk.raw", root, None)
    at = made.read_bytes().index(b"extent_count = 8")
    with pytest.raises(UserInputError, match="its checksum is another"):
        read(patched(made, at + 15, b"9"))
