# SPDX-License-Identifier: Apache-2.0
"""Disks with loaders, as `export` asks for them: words, guide, and what is refused. The tools are not started."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.fakes import exports
from tests.fakes.bundle_data import bundle
from tests.fakes.exports import exported, made_bundle

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError
from vmtailor.drivers.host.bundle_folder import seal
from vmtailor.drivers.targets import loader_disk, unified_image
from vmtailor.drivers.targets.loader_disk import DiskContent
from vmtailor.drivers.targets.target import ExportWishes
from vmtailor.pipeline import bundle_kernel_forms, run_ports
from vmtailor.pipeline.bundle_export import export

Written = list[tuple[DiskContent, tuple[str, ...]]]


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Written:
    """Each disk that would have been written: its content, and the words of its kernel."""
    image = tmp_path / "bzImage"
    image.write_bytes(b"kernel")
    found: Written = []

    def write(disk: Path, content: DiskContent, words: Sequence[str], seed: str, scratch: Path) -> None:
        assert content.unified.read_text() == " ".join(words) and scratch.is_dir() and seed
        disk.write_bytes(b"disk")
        found.append((content, tuple(words)))

    def unified(kernel: Path, words: str, name: str, version: str, target: Path) -> None:
        assert kernel == image
        target.write_text(words)

    monkeypatch.setattr(bundle_kernel_forms, "made", lambda *_: image)
    monkeypatch.setattr(loader_disk, "write", write)
    monkeypatch.setattr(unified_image, "write", unified)
    return found


def test_its_root_is_a_partition_and_its_address_comes_by_dhcp(written: Written, tmp_path: Path) -> None:
    wishes = ExportWishes(ports=run_ports.parse_all(("8080:80",)), memory_bytes=256 << 20)
    done = exported(tmp_path, "disk", wishes, network=True)
    content, words = written[0]
    assert words[0].startswith("root=PARTUUID=") and sum(word.startswith("root=") for word in words) == 1
    assert {"VT_NET=dhcp", "VT_END=off", "VT_DISKS=partitions", "VT_CONSOLE=plain"} <= set(words)
    assert "reboot=t" not in words and content.run is None
    assert done.guide.first.startswith("qemu-system-x86_64 -machine q35 ") and "-m 256 " in done.guide.first
    assert "hostfwd=tcp:127.0.0.1:8080-:80 " in done.guide.first and "file=disk.raw,format=raw" in done.guide.first
    assert done.files == ("README.md", "disk.raw") and (done.folder / "disk.raw").stat().st_mode & 0o777 == 0o644


def test_variables_are_on_a_disk_that_its_owner_alone_reads(written: Written, tmp_path: Path) -> None:
    done = exported(tmp_path, "disk", ExportWishes(env=("SECRET=x",)))
    content, words = written[0]
    assert content.run is not None and b"SECRET=x" in content.run and "VT_RUN=1" in words
    assert (done.folder / "disk.raw").stat().st_mode & 0o777 == 0o600


def test_an_init_without_partitions_or_dhcp_is_refused(
    written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "INIT", exports.INIT.replace(b"VT_DISKS", b"VT_OTHER"))
    with pytest.raises(UserInputError, match="older than disks"):
        exported(tmp_path / "env", "disk", ExportWishes(env=("A=b",)))
    monkeypatch.setattr(exports, "INIT", exports.INIT.replace(b"dhcp", b"othr"))
    with pytest.raises(UserInputError, match="older than its DHCP client"):
        exported(tmp_path / "net", "disk", network=True)
    assert not written


@pytest.mark.attack
@pytest.mark.parametrize("word", ["a='b'", 'dyndbg="x', "a\\b"])
def test_a_word_that_grub_would_change_is_refused(written: Written, word: str, tmp_path: Path) -> None:
    made = made_bundle(tmp_path / "bundle", "disk")
    seal(made, bundle(words=(*bundle().words, word)))
    with pytest.raises(UserInputError):
        export(made, "disk", tmp_path / "out", ExportWishes(), Store(tmp_path / "cache"))
    assert not written and not (tmp_path / "out").exists()
