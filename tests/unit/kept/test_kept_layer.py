# SPDX-License-Identifier: Apache-2.0
"""The disk of what a named machine writes: who has one, what the machine is told of it, and what is said of it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.started import Start
from tests.fakes.supervisor import made
from tests.unit.kept.test_kept_run import Became, bundle, no_supervisor, run

from vmtailor.base.errors import HostError, UserInputError
from vmtailor.base.files import records
from vmtailor.drivers.host import bundle_folder, machine_folders
from vmtailor.drivers.host.bundle_folder import seal
from vmtailor.drivers.host.machine_folders import MachineFolder, MachineFolders
from vmtailor.drivers.shares import ext4_disks
from vmtailor.model.boots.surroundings import GuestSurroundings
from vmtailor.model.bundle import INIT, RECORD, Bundle
from vmtailor.model.guest_mounts import MountKind
from vmtailor.pipeline import kept_layer, kept_start
from vmtailor.pipeline.kept_layer import lacks, parse_storage, written_soon
from vmtailor.pipeline.kept_run import KeptOptions
from vmtailor.pipeline.machine_run import RunOptions
from vmtailor.pipeline.mount_words import parse_volumes

__all__ = ["bundle", "no_supervisor"]  # fixtures
KERNEL = "CONFIG_OVERLAY_FS=y\nCONFIG_EXT4_FS=y\nCONFIG_EXT4_FS_SECURITY=y\n"
ABLE = b"\x7fELF\0builtin\0+layer\0+sysctl\0mount-at\0"


@pytest.fixture
def able(bundle: Path) -> Path:
    """A bundle whose machine keeps what it writes."""
    return changed(bundle, KERNEL + "CONFIG_PROC_SYSCTL=y\n", ABLE)


def changed(folder: Path, config: str, init: bytes) -> Path:
    (folder / "config").write_text(config)
    (folder / INIT).write_bytes(init)
    seal(folder, records.load(Bundle, folder / RECORD))
    return folder


def opened(became: Became, folder: MachineFolder) -> list[str]:
    return [value for value in became.all("open") if value.endswith(f"/{machine_folders.LAYER}")]


def told(became: Became) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for value in became.all("run"):
        key, _, rest = value.partition(" ")
        found.setdefault(key, []).append(rest)
    return found


def test_a_machine_with_a_name_has_a_disk(able: Path, capsys: pytest.CaptureFixture[str]) -> None:
    became = run(able, KeptOptions(name="web"))
    folder = MachineFolders().find("web")
    layer = folder.layer
    assert layer is not None and layer.stat().st_size == folder.record.layer_bytes == kept_layer.USUAL_BYTES
    assert layer.stat().st_mode & 0o777 == 0o600 and 0 < (folder.layer_taken_bytes() or 0) < 16 << 20
    # It is written at each run, so the supervisor does not ask whether it has changed.
    assert [value.split()[1:7] for value in opened(became, folder)] == [
        ["r", *"00000"], ["rw", *"00000"],
    ] or not opened(became, folder)  # fmt: skip
    assert told(became)["+layer"] == ["2 commit=1"]
    assert told(became)["+sysctl"] == ["vm/dirty_expire_centisecs 100", "vm/dirty_writeback_centisecs 100"]
    assert "in memory" not in capsys.readouterr().err
    MachineFolders().remove(folder)
    assert not layer.exists()


def test_the_disk_lies_behind_volumes(able: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ext4_disks, "make", lambda disk, size: disk.write_bytes(bytes(512)))
    became = run(able, KeptOptions(name="web"), volumes=parse_volumes(["data:/v"]))
    assert told(became)["mount-at"] == ["ext4 rw,copy 2 /v"] and told(became)["+layer"] == ["3 commit=1"]
    assert not (MachineFolders().find("web").path / machine_folders.ORDERS).exists()  # they are for one start


def test_a_user_whose_path_lacks_the_administrators_programs_has_a_disk(
    able: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert lacks(bundle_folder.load(able)) == ("", "")


@pytest.mark.parametrize(
    ("config", "init", "why", "hint"),
    [
        ("CONFIG_OVERLAY_FS=y\n", ABLE, "lacks EXT4_FS, EXT4_FS_SECURITY", "--keep volumes"),
        (KERNEL.replace("EXT4_FS=y", "EXT4_FS=m"), ABLE, "lacks EXT4_FS", "--keep volumes"),
        (KERNEL, ABLE.replace(b"+layer", b"+later"), "is older than that", "refit"),
        (KERNEL, ABLE, "", ""),
    ],
)
def test_a_bundle_that_keeps_nothing(
    bundle: Path, config: str, init: bytes, why: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    files = bundle_folder.load(changed(bundle, config, init))
    assert why in lacks(files)[0] and hint in lacks(files)[1] and bool(lacks(files)[0]) == bool(why)
    became = run(bundle, KeptOptions(name="web"))
    folder, said = MachineFolders().find("web"), capsys.readouterr().err
    assert (folder.layer is None) == ("+layer" not in told(became)) == bool(why)
    assert said.count("keeps what it writes in memory, until it stops") == int(bool(why)) and why in said
    assert folder.record.layer_lacks == lacks(files)[0]


def test_a_host_that_can_make_no_file_system(able: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, path="": None)
    assert lacks(bundle_folder.load(able)) == ("there is no mkfs.ext4 on this host", "install e2fsprogs")

    def fail(disk: Path, size: int) -> None:
        raise HostError("no")

    monkeypatch.undo()
    monkeypatch.setattr(ext4_disks, "make", fail)
    with pytest.raises(HostError):
        kept_start.run_kept(RunOptions(able, outbound=False), KeptOptions(name="web"))
    assert MachineFolders().every() == []


def test_a_machine_that_goes_at_its_end_keeps_nothing(able: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(able, KeptOptions(name="web"), rm=True)
    assert MachineFolders().find("web").layer is None and capsys.readouterr().err == ""


def test_sizes(able: Path, bundle: Path) -> None:
    run(able, KeptOptions(name="web", layer_bytes=parse_storage("size=1G")))
    assert MachineFolders().find("web").record.layer_bytes == 1 << 30
    for text in ("size=1", "size=4M", "size=1000T", "size", "dm.basesize=1G"):
        with pytest.raises(UserInputError):
            parse_storage(text)
    for rm in (True, False):
        changed(bundle, KERNEL if rm else "", ABLE)
        with pytest.raises(UserInputError, match="--storage-opt: what this machine writes is in memory"):
            kept_start.run_kept(RunOptions(bundle, rm=rm), KeptOptions(name="other", layer_bytes=1 << 30))
    assert not KeptOptions(layer_bytes=1 << 30).keeps


def test_what_the_user_sets_stays(able: Path, bundle: Path) -> None:
    files = bundle_folder.load(able)
    mine = ("vm/dirty_expire_centisecs", "7")
    assert written_soon(GuestSurroundings(sysctls=(mine,)), files).sysctls == (
        ("vm/dirty_writeback_centisecs", "100"), mine,
    )  # fmt: skip
    assert written_soon(GuestSurroundings(), bundle_folder.load(changed(bundle, KERNEL, ABLE))) == GuestSurroundings()


def test_what_is_shown_of_it(call: Start) -> None:
    mounts: list[dict[str, Any]] = [
        {"kind": MountKind.FOLDER, "source": "/srv", "target": "/h", "read_only": True},
        {"kind": MountKind.VOLUME, "source": "data", "target": "/declared"}, {"target": 3},
    ]  # fmt: skip
    options = {"volumes": mounts, "mounts": [{"kind": "tmpfs", "source": "", "target": "/t"}, "x"]}
    folder = made("web", layer_bytes=1 << 30, volumes=("/declared", "/other"), options=options)
    assert folder.layer is not None and json.loads(call("inspect", "web")[1])[0]["SizeRw"] is None  # it is gone
    folder.layer.write_bytes(bytes(8192))
    found = json.loads(call("inspect", "web")[1])[0]
    assert found["Layer"] == {"Kept": True, "Path": str(folder.layer), "Limit": 1 << 30} and found["SizeRw"] == 8192
    assert [(one["Type"], one["Name"], one["Source"], one["Destination"], one["RW"]) for one in found["Mounts"]] == [
        ("volume", "data", "", "/declared", True), ("volume", "", "", "/other", True),
        ("bind", "", "/srv", "/h", False), ("tmpfs", "", "", "/t", True),
    ]  # fmt: skip
    assert found["Config"]["Volumes"] == {"/declared": {}, "/other": {}}
    assert "SIZE" not in call("ps", "-a")[1] and "8.19" in call("ps", "-a", "-s")[1]
    made("old")
    old = json.loads(call("inspect", "old")[1])[0]
    assert old["Layer"] == {"Kept": False, "Why": "it was made by a version that kept nothing"}
    assert "in memory" in call("ps", "-as")[1]


def test_a_record_of_before_is_read(bundle: Path) -> None:
    """It has none of the fields about the disk."""
    folder = made("web")
    document = json.loads((folder.path / machine_folders.RECORD).read_text())
    for name in ("layer_bytes", "layer_lacks", "volumes"):
        document.pop(name, None)
    (folder.path / machine_folders.RECORD).write_text(json.dumps(document))
    again = MachineFolders().find("web")
    assert again.layer is None and replace(again.record) == folder.record
