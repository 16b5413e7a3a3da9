# SPDX-License-Identifier: Apache-2.0
"""Records in a cache name files relative to it, so that a cache can be moved, and a folder of it copied elsewhere."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import portable, records
from vmtailor.model.boots.boot import Boot, Outcome
from vmtailor.model.image import Image, ImageConfig
from vmtailor.model.kernel import KernelFiles
from vmtailor.model.machine import Disk, Machine

IMAGE = Image("hello", "sha256:1", ImageConfig("amd64"), "", "2" * 64, 1, 1)


def test_names_are_relative_to_the_records_own_folder_and_to_the_cache(tmp_path: Path) -> None:
    store = Store(tmp_path / "cache")

    def fill(folder: Path) -> None:
        (folder / "vmlinux").write_text("kernel")
        files = KernelFiles(
            "6", str(folder / "vmlinux"), 6, None, 6, "", str(store.root / "x/y/map"), "s", "gcc", 1, 1.0
        )
        records.save(files, folder / "kernel.json")

    folder = store.get("kernel", "1" * 40, fill)
    text = (folder / "kernel.json").read_text()
    assert '"vmlinux"' in text
    assert '"$CACHE/x/y/map"' in text
    assert str(tmp_path) not in text
    found = records.load(KernelFiles, folder / "kernel.json")
    assert found.image == str(folder / "vmlinux")
    assert Path(found.image).read_text() == "kernel"
    assert found.system_map == str(store.root / "x/y/map")
    assert found.config == ""


def test_a_moved_cache_gives_the_same_records_at_its_new_place(tmp_path: Path) -> None:
    old = Store(tmp_path / "old")
    machine = Machine("microvm", 1, kernel=str(old.root / "k/1/vmlinux"), disks=(Disk(str(old.root / "r/1/root")),))
    folder = old.folder("k", "1")
    records.save(machine, folder / "machine.json")
    boot = Boot(Outcome.READY, (), 1.0, command=f"qemu -kernel {old.root}/k/1/vmlinux -drive file={old.root}/r/1/root")
    records.save(boot, folder / "boot.json")
    shutil.move(tmp_path / "old", tmp_path / "new")
    new = Store(tmp_path / "new")
    found = records.load(Machine, new.path("k", "1") / "machine.json")
    assert found.kernel == str(new.root / "k/1/vmlinux")
    assert found.disks[0].path == str(new.root / "r/1/root")
    command = records.load(Boot, new.path("k", "1") / "boot.json").command
    assert command == f"qemu -kernel {new.root}/k/1/vmlinux -drive file={new.root}/r/1/root"
    assert not [one for one in new.root.rglob("*.json") if str(tmp_path).encode() in one.read_bytes()]


def test_files_outside_of_a_cache_keep_their_names(tmp_path: Path) -> None:
    store = Store(tmp_path / "cache")
    disk = Machine("q35", 1, disks=(Disk("/home/me/disk.raw"),))
    records.save(disk, store.folder("k") / "1.json")
    assert records.load(Machine, store.root / "k" / "1.json") == disk
    inside = replace(disk, kernel=str(store.root / "k/vmlinux"))
    records.save(inside, tmp_path / "out.json")
    assert records.load(Machine, tmp_path / "out.json") == inside


@pytest.mark.attack
@pytest.mark.parametrize("name", ["$CACHE/../../etc/passwd", "../x", "$CACHE//etc/passwd", "$CACHE/", "a\\u0000b"])
def test_a_name_that_leads_out_of_the_cache_is_refused(tmp_path: Path, name: str) -> None:
    store = Store(tmp_path / "cache")
    path = store.folder("image") / "image.json"
    path.write_bytes(records.to_bytes(IMAGE).replace(b'"archive": ""', f'"archive": "{name}"'.encode()))
    with pytest.raises(UserInputError, match="outside"):
        records.load(Image, path)


def test_names_of_a_bundle_that_was_made_in_the_cache_are_found_in_this_one(tmp_path: Path) -> None:
    machine = Machine("microvm", 1, kernel="$CACHE/k/1/vmlinux", initrd="own")
    found = portable.within(machine, tmp_path)
    assert (found.kernel, found.initrd) == (str(tmp_path / "k/1/vmlinux"), "own")
