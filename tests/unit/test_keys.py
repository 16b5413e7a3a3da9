# SPDX-License-Identifier: Apache-2.0
"""What results are found again by: the code that judged them, and QEMU with its firmware, are part of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from vmtailor.analysis.reach import image_reach
from vmtailor.drivers.qemu.qemu_program import firmware_in
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
