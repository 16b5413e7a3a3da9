# SPDX-License-Identifier: Apache-2.0
"""Files are put on a copy of a disk by the file system's own tools, and the disk that was given stays as it is."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.fakes.systems import MIB, ext4, partitioned, put, tool, tree

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError
from vmtailor.drivers.disks.ext4 import require_plain
from vmtailor.model.machine import Disk, DiskFormat, Machine
from vmtailor.pipeline.options import FitOptions
from vmtailor.pipeline.systems import disk_files, inputs, subjects

pytestmark = pytest.mark.contract

SETTING, RULE = "/etc/engine/engine.json", "/etc/udev/rules.d/99-none.rules"
LINK = "/etc/engine/linked.json"
OLD, NEW = '{"old": "ü"}\n', '{"new": true}\n' * 1000


def content(folder: Path) -> Path:
    root = tree(folder / "tree")
    put(root, SETTING[1:], OLD)
    (root / SETTING[1:]).chmod(0o640)
    put(root, RULE[1:], "# none\n")
    put(root, LINK[1:], "-> /nowhere")
    return root


def whole(folder: Path) -> tuple[Path, int]:
    return ext4(folder / "disk.raw", content(folder)), 0


def in_partition(folder: Path) -> tuple[Path, int]:
    return partitioned(folder / "disk.raw", content(folder)), 5 * MIB


def as_qcow2(folder: Path) -> tuple[Path, int]:
    raw, _ = in_partition(folder)
    tool("qemu-img", "convert", "-O", "qcow2", raw, folder / "disk.qcow2")
    return folder / "disk.qcow2", 5 * MIB


def machine_of(disk: Path) -> Machine:
    form = DiskFormat.QCOW2 if disk.suffix == ".qcow2" else DiskFormat.RAW
    return Machine("q35", 512 << 20, "", disks=(Disk(str(disk), form),))


def written(
    disk: Path, store: Store, files: dict[str, str | None]
) -> tuple[Machine, dict[str, str | None], dict[str, str | None]]:
    """The machine with the files, what stood there before, and what stands there now."""
    machine = machine_of(disk)
    with subjects.opened(f"disk:{disk}", store) as found:
        given: Any = SimpleNamespace(
            found=found, system=found.subject, store=store, reference=f"disk:{disk}",
            sha256=hashlib.sha256(disk.read_bytes()).hexdigest(),
        )  # fmt: skip
        changed, before = disk_files.written(given, machine, files)
    with subjects.opened(f"disk:{changed.disks[0].path}", store) as found:
        now = {path: found.root.text(path) if found.root.node(path) else None for path in files}
    return changed, dict(before), now


@pytest.mark.parametrize("make", [whole, in_partition, as_qcow2])
def test_a_copy_has_the_files_and_nothing_else_is_changed(
    tmp_path: Path, make: Callable[[Path], tuple[Path, int]]
) -> None:
    disk, offset = make(tmp_path)
    as_it_was = disk.read_bytes()
    new = "/etc/udev/rules.d/10-new.rules"
    files = {SETTING: NEW, RULE: None, new: "", LINK: "1"}
    changed, before, now = written(disk, Store(tmp_path / 'a "cache'), files)
    assert before == {SETTING: OLD, RULE: "# none\n", new: None, LINK: None} and now == files
    assert disk.read_bytes() == as_it_was
    copy = Path(changed.disks[0].path)
    assert copy != disk and changed.disks[0].format is DiskFormat.RAW
    assert copy.stat().st_blocks * 512 < copy.stat().st_size
    assert not [path for path in copy.parent.iterdir() if path != copy]
    root = tmp_path / "root.raw"
    root.write_bytes(copy.read_bytes()[offset:][: 16 * MIB])
    tool("e2fsck", "-fn", root)  # it ends with an error of the file system's
    about = tool("debugfs", "-R", f"stat {SETTING}", root).decode()
    owner = (tmp_path / "tree" / SETTING[1:]).stat()
    assert re.search(r"Mode:  0640\b", about) and re.search(rf"User: +{owner.st_uid} +Group: +{owner.st_gid}\b", about)
    assert re.search(r"Mode:  0644\b", tool("debugfs", "-R", f"stat {new}", root).decode())


def test_the_same_files_are_one_copy_and_no_change_is_none(tmp_path: Path) -> None:
    disk, _ = whole(tmp_path)
    store = Store(tmp_path / "cache")
    first, again = (written(disk, store, {SETTING: NEW})[0] for _ in range(2))
    assert first == again
    assert written(disk, store, {SETTING: OLD})[0] == replace(machine_of(disk))


@pytest.mark.parametrize(
    "path", ["etc/x", "/etc/../x", "/etc/./x", "/etc/a b", "/etc/x\nrm /etc/hosts", "/", "/etc/<2>", '/etc/"x', ""]
)
def test_a_path_that_is_no_plain_one_is_refused(path: str, tmp_path: Path) -> None:
    with pytest.raises(UserInputError, match="is not a path that can be changed"):
        require_plain(path)


def test_what_cannot_be_put_there_is_told(tmp_path: Path) -> None:
    disk, _ = whole(tmp_path)
    store = Store(tmp_path / "cache")
    with pytest.raises(UserInputError, match="/no/folder/x cannot be changed") as told:
        written(disk, store, {"/no/folder/x": "1"})
    assert "/no/folder" in told.value.hint
    with subjects.opened(f"disk:{disk}", store) as found:
        for path, new, said in (("/no/folder/x", "1", "no folder /no/folder"), ("/etc/x", None, "no such file")):
            options = FitOptions(f"disk:{disk}", tmp_path / "out", files=((path, new),), store=store)
            with pytest.raises(UserInputError, match=said):  # before anything is booted
                inputs.refuse_files(options, found.root)
        fine = ((SETTING, NEW), (RULE, None), ("/etc/udev/new", ""), ("/top", ""))
        inputs.refuse_files(FitOptions("disk:x", tmp_path / "out", files=fine, store=store), found.root)
    with pytest.raises(UserInputError, match=r"/etc of .* is not a text"):
        written(disk, store, {"/etc": "1"})
    assert not list((tmp_path / "cache").rglob("disk.raw"))
