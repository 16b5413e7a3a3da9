# SPDX-License-Identifier: Apache-2.0
"""What results are found again by: the code that judged them, and QEMU with its firmware, are part of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.fakes.bundle_data import EXERCISE

from vmtailor.analysis.reach import image_reach
from vmtailor.base.natives import Natives
from vmtailor.booting import given_environment
from vmtailor.booting.given_environment import GivenEnvironment
from vmtailor.drivers.monitors import monitors
from vmtailor.drivers.qemu.qemu_program import firmware_in
from vmtailor.model.machine import Accelerator, Clock, Devices, Disk, DiskMode, Machine, PublishedPort, TalkLine
from vmtailor.pipeline import keys
from vmtailor.stages import container_trace, measure, verify


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A small package in place of ours: `judge` imports `rules`, which imports `deep`; `other` stands apart.
    `rules` reads the rules of demand, and nothing the changes."""
    root = tmp_path / "tiny"
    files = {
        "judge.py": "import os\nfrom tiny import rules\n",
        "rules.py": 'def f():\n    import tiny.deep\n    return read("demand")\n',
        "deep/__init__.py": "",
        "other.py": "",
        "data/expected.toml": "",
        "data/demand/calls.toml": "",
        "data/changes/usb.toml": "",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    monkeypatch.setattr(keys, "_PACKAGE", root)
    keys.code_of.cache_clear()
    yield root
    keys.code_of.cache_clear()


@pytest.mark.parametrize(
    "name", ["judge.py", "rules.py", "deep/__init__.py", "data/expected.toml", "data/demand/calls.toml"]
)
def test_a_change_of_what_judges_is_another_key(package: Path, name: str) -> None:
    before = keys.code_of("tiny.judge")
    (package / name).write_text("stricter = True")
    keys.code_of.cache_clear()
    assert keys.code_of("tiny.judge") != before


@pytest.mark.parametrize("name", ["other.py", "data/changes/usb.toml"])
def test_what_has_no_say_leaves_the_key(package: Path, name: str) -> None:
    before = keys.code_of("tiny.judge")
    (package / name).write_text("something = 'else'")
    keys.code_of.cache_clear()
    assert keys.code_of("tiny.judge") == before


@pytest.mark.lengthy
def test_each_stage_depends_on_what_it_judges_by() -> None:
    parts = {
        container_trace: {"vmtailor.analysis.demands.container_calls", "vmtailor.booting.container_boot"},
        verify: {
            "vmtailor.analysis.demands.degradation",
            "vmtailor.analysis.guests.kernel_complaints",
            "vmtailor.drivers.host.host_client",
        },
        measure: {
            "vmtailor.analysis.cost.plugin_counts",
            "vmtailor.booting.container_boot",
            "vmtailor.drivers.qemu.qemu_command",  # of a driver, which a row of data names
        },
    }
    for stage, names in parts.items():
        assert names <= set(keys._imported(stage.__name__, {}))


@pytest.mark.lengthy
def test_each_stage_depends_on_the_data_that_it_reads() -> None:
    read = {
        stage: {path.parent.name for path in keys._data_of(keys._imported(stage.__name__, {}).values())}
        for stage in (container_trace, verify, image_reach)
    }
    assert {"data", "architectures", "demand", "harmless"} <= read[verify]
    assert {"data", "architectures"} <= read[container_trace] and not {"demand", "harmless"} & read[container_trace]
    assert "demand" in read[image_reach]


def test_firmware_is_found_in_the_folders_that_qemu_names(tmp_path: Path) -> None:
    (tmp_path / "qboot.rom").write_bytes(b"1")
    (tmp_path / "vgabios.bin").write_bytes(b"2")
    assert firmware_in([str(tmp_path), str(tmp_path / "none")], ["qboot.rom", "other.bin"]) == (tmp_path / "qboot.rom",)


def test_a_file_is_read_once_unless_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []

    def sha256_of(path: Path) -> str:
        read.append(path)
        return path.read_text()

    monkeypatch.setattr(keys, "sha256_of", sha256_of)
    disk, other = tmp_path / "disk", tmp_path / "other"
    disk.write_text("one")
    other.write_text("other")
    keys.note_content(disk, "known already")
    assert [keys.content(one) for one in (disk, other, other)] == ["known already", "other", "other"]
    disk.write_text("changed")
    assert keys.content(disk) == "changed"
    assert read == [other, disk]


# ---- the program


@pytest.mark.parametrize("suffix", ["py", "toml", "js", "css", "html", "j2"])
def test_a_change_of_the_program_is_another_key_of_fits(package: Path, suffix: str) -> None:
    keys.code.cache_clear()
    try:
        before = keys.code()
        (package / "data" / "notes.md").write_text("no part of the program")
        keys.code.cache_clear()
        assert keys.code() == before
        (package / "data" / f"part.{suffix}").write_text("x")
        keys.code.cache_clear()
        changed = keys.code()
        (package / "data" / f"part.{suffix}").rename(package / f"part.{suffix}")
        keys.code.cache_clear()
        assert len({before, changed, keys.code()}) == 3
    finally:
        keys.code.cache_clear()


# ---- machines and runs


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    os.utime(path, ns=(0, hash(text) % 10**15))
    return path


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    for name in ("kernel", "initrd", "root", "more"):
        written(tmp_path / name, name)
    disks = (Disk(str(tmp_path / "root")), Disk(str(tmp_path / "more"), mode=DiskMode.WRITTEN))
    kernel, initrd = str(tmp_path / "kernel"), str(tmp_path / "initrd")
    return Machine("microvm", 64 << 20, kernel, ("quiet",), initrd, disks, architecture="x86_64")


@pytest.mark.parametrize("name", ["kernel", "initrd", "root", "more"])
def test_a_machine_is_known_by_what_its_files_hold_and_not_by_their_names(
    machine: Machine, tmp_path: Path, name: str
) -> None:
    before = keys.of_machine(machine)
    moved = {other: str(written(tmp_path / f"{other}-moved", other)) for other in ("kernel", "initrd", "root", "more")}
    disks = tuple(replace(one, path=moved[Path(one.path).name]) for one in machine.disks)
    assert keys.of_machine(replace(machine, kernel=moved["kernel"], initrd=moved["initrd"], disks=disks)) == before
    written(tmp_path / name, "another")
    assert keys.of_machine(machine) != before


def test_a_machine_is_known_by_every_value(machine: Machine) -> None:
    others: dict[str, Any] = {
        "board": "q35", "memory_bytes": 1, "words": ("quiet", "ro"), "network": True, "cpus": 2, "cpu_model": "host",
        "ports": (PublishedPort("127.0.0.1", 1, 1),), "clock": Clock.WALL, "accelerator": Accelerator.KVM,
        "acpi": True, "outbound": True, "host_loopback": True, "devices": Devices.USUAL, "entropy": True,
        "firmware": "other", "extras": ("-x",), "architecture": "arm64", "pace": 1, "monitor": "toyvm",
        "line": TalkLine.VIRTIO, "mac": "52:54:00:12:34:57", "tap": "tap0",
        "network6": True,
    }  # fmt: skip
    assert others.keys() == {one.name for one in fields(Machine)} - {"kernel", "initrd", "disks"}
    made = [keys.of_machine(replace(machine, **{name: value})) for name, value in others.items()]
    overlaid = replace(machine, disks=(replace(machine.disks[0], mode=DiskMode.OVERLAID), machine.disks[1]))
    assert len({keys.of_machine(machine), keys.of_machine(overlaid), *made}) == len(made) + 2


def test_a_run_is_known_by_everything_that_takes_part(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    natives = Natives(tmp_path / "natives")
    (tmp_path / "natives").mkdir()
    for name in ("init", "client", "load-client", "builtin", "stage1"):
        written(tmp_path / "natives" / name, name)
    firmware, version = written(tmp_path / "firmware", "one"), "9.2"
    asked = []

    def of(one: Machine) -> Any:
        def identity(architecture: str, parts: Natives) -> tuple[str | Path, ...]:
            asked.append((one.monitor, architecture, parts))
            return (version, firmware)

        return SimpleNamespace(identity=identity)

    monkeypatch.setattr(monitors, "of", of)
    monkeypatch.setattr(keys, "code_of", lambda name: name)

    def key(judge: Any = verify, exercise: Any = EXERCISE, on: Machine = machine, *more: str) -> str:
        return keys.of_run(judge, on, exercise, natives, *more)

    found = [key(), key(measure), key(verify, replace(EXERCISE, load=())), key(verify, EXERCISE, machine, "more")]
    found.append(key(verify, EXERCISE, replace(machine, cpus=2)))
    for name in ("init", "client", "load-client", "builtin", "stage1"):
        written(tmp_path / "natives" / name, f"another {name}")
        found.append(key())
    version = "10.0"
    found.append(key())
    written(firmware, "two")
    found.append(key())
    for given in (GivenEnvironment((("MODE", "a"),)), GivenEnvironment((), (("TOKEN", "x"),))):
        monkeypatch.setattr(given_environment, "_given", given)
        found.append(key())
    assert len(set(found)) == len(found) and key() == found[-1]
    assert set(asked) == {("qemu", "x86_64", natives)}
