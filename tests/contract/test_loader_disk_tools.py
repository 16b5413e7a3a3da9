# SPDX-License-Identifier: Apache-2.0
"""The tools that write a disk with loaders: what they wrote is read again."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from vmtailor.drivers.targets import disk_table, loader_disk, unified_image
from vmtailor.drivers.targets.loader_disk import DiskContent

pytestmark = pytest.mark.contract
WORDS = ("root=PARTUUID=1-2", "console=ttyS0", "VT_NET=dhcp")


def said(*argv: str | Path) -> bytes:
    return subprocess.run(argv, check=True, capture_output=True, timeout=60).stdout


@pytest.fixture
def content(tmp_path: Path) -> DiskContent:
    """Files that stand for a root file system and a kernel."""
    for name, size in (("root", 3 << 20), ("kernel", 1 << 20)):
        (tmp_path / name).write_bytes(name.encode() * (size // len(name)))
    unified = tmp_path / "unified.efi"
    unified_image.write(tmp_path / "kernel", " ".join(WORDS), "web", "6.12", unified)
    return DiskContent(tmp_path / "root", tmp_path / "kernel", unified, b"run volume")


def written(folder: Path, content: DiskContent) -> Path:
    folder.mkdir()
    scratch = folder / "scratch"
    scratch.mkdir()
    loader_disk.write(folder / "disk.raw", content, WORDS, "seed", scratch)
    return folder / "disk.raw"


def test_a_disk_has_a_table_both_loaders_and_the_files(content: DiskContent, tmp_path: Path) -> None:
    disk = written(tmp_path / "first", content)
    found = json.loads(said("/usr/sbin/sfdisk", "--json", disk))["partitiontable"]
    parts = {part["name"]: part for part in found["partitions"]}
    assert found["label"] == "gpt" and list(parts) == ["root", "run", "bios", "efi"]
    assert parts["root"]["uuid"].lower() == str(disk_table.uuid_of("root", "seed"))
    assert parts["root"]["node"].endswith("1") and parts["run"]["node"].endswith("2")
    data = disk.read_bytes()
    assert data[parts["root"]["start"] * 512 :].startswith(content.root.read_bytes())
    assert data[parts["run"]["start"] * 512 :].startswith(b"run volume")
    assert data[510:512] == b"\x55\xaa" and data[:440].strip(b"\0")
    efi = tmp_path / "efi.img"
    efi.write_bytes(data[parts["efi"]["start"] * 512 :][: parts["efi"]["size"] * 512])
    assert said("mtype", "-i", efi, "::/vmlinuz") == content.kernel.read_bytes()
    assert said("mtype", "-i", efi, "::/EFI/BOOT/BOOTX64.EFI") == content.unified.read_bytes()


def test_equal_contents_make_equal_disks(content: DiskContent, tmp_path: Path) -> None:
    first, second = (written(tmp_path / name, content).read_bytes() for name in ("first", "second"))
    assert first == second


def test_a_unified_image_holds_kernel_and_command_line(content: DiskContent, tmp_path: Path) -> None:
    for section, expected in ((".cmdline", " ".join(WORDS).encode()), (".linux", content.kernel.read_bytes())):
        part = tmp_path / "part"
        said("objcopy", "-O", "binary", "--only-section", section, content.unified, part)
        assert part.read_bytes().rstrip(b"\0") == expected.rstrip(b"\0")
