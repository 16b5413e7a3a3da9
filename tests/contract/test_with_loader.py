# SPDX-License-Identifier: Apache-2.0
"""A disk with a boot loader of its own, made of the example's: its table, its menu, and what cannot be made."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.contract

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "debian-vm" / "with-loader"


@pytest.fixture(scope="module")
def tool() -> Any:
    loader = importlib.machinery.SourceFileLoader("with_loader", str(SCRIPT))
    spec = importlib.util.spec_from_loader("with_loader", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.fixture
def filesystem(tmp_path: Path) -> Path:
    root, folder = tmp_path / "root", tmp_path / "a folder"
    (root / "boot").mkdir(parents=True)
    folder.mkdir()
    for name in ("vmlinuz-6.1.0-1-cloud", "initrd.img-6.1.0-1-cloud"):
        (root / "boot" / name).write_text(name)
    disk = folder / "root.ext4"
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-d", str(root), str(disk), "8M"], check=True)
    return disk


def test_the_menu_names_the_systems_kernel_and_its_words(tool: Any, filesystem: Path) -> None:
    tool.with_menu(filesystem, "root=/dev/vda1 ro", 5)
    menu = tool.debugfs(filesystem, "cat /boot/grub/grub.cfg")
    assert "set timeout=5" in menu and "linux /boot/vmlinuz-6.1.0-1-cloud root=/dev/vda1 ro" in menu
    assert "initrd /boot/initrd.img-6.1.0-1-cloud" in menu


def test_a_menu_that_cannot_be_written_and_a_disk_without_a_kernel_are_errors(tool: Any, filesystem: Path) -> None:
    tool.debugfs(filesystem, "rm /boot/initrd.img-6.1.0-1-cloud", write=True)
    with pytest.raises(SystemExit, match=r"there is no /boot/initrd"):
        tool.with_menu(filesystem, "", 0)
    with pytest.raises(SystemExit, match="could not be written"):
        original, tool.newest = tool.newest, lambda disk, kind: f"/boot/{kind}"
        try:
            tool.debugfs(filesystem, "mkdir /boot/grub", write=True)
            tool.debugfs(filesystem, "mkdir /boot/grub/grub.cfg", write=True)
            tool.with_menu(filesystem, "", 0)
        finally:
            tool.newest = original


def test_the_file_system_is_the_first_partition_and_keeps_its_holes(tool: Any, filesystem: Path) -> None:
    whole = filesystem.parent / "whole.raw"
    tool.partitioned(filesystem, b"C" * 1000, b"B" * 512, whole)
    data = whole.read_bytes()
    status, kind, start, sectors = data[446], data[450], *struct.unpack_from("<II", data, 454)
    assert (status, kind, start, sectors) == (0x80, 0x83, 2048, (8 << 20) // 512)
    assert data[:440] == b"B" * 440 and data[510:512] == b"\x55\xaa" and data[512:1512] == b"C" * 1000
    assert data[2048 * 512 :] == filesystem.read_bytes()
    assert whole.stat().st_blocks < whole.stat().st_size // 512
    with pytest.raises(SystemExit, match="does not fit"):
        tool.partitioned(filesystem, b"C" * (2048 * 512), b"B" * 512, whole)


def test_a_folder_that_is_no_machine_is_said(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path), str(tmp_path / "out.raw")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1 and not (tmp_path / "out.raw").exists()
    assert "no folder that build wrote" in ended.stderr or "grub-mkimage is missing" in ended.stderr
