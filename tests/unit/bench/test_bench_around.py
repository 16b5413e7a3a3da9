# SPDX-License-Identifier: Apache-2.0
"""The machine around engines that a bundle gives: as it was fitted, but for its network."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.fakes.bundle_data import bundle

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError
from vmtailor.bench.run import machine_around
from vmtailor.drivers.distribution import packaged_baseline
from vmtailor.drivers.guest.attendant_volume import SystemRoot
from vmtailor.drivers.host import bundle_folder
from vmtailor.model.machine import Clock, Disk, DiskMode

RECORD = bundle(image=None, machine="q35", memory_bytes=2 << 30, words=("root=/dev/vda1", "rw"), root="disk.raw")


DISK = SimpleNamespace(root=1, root_type="ext4", volume=None)


@pytest.fixture
def fitted(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A bundle of a system, as it is read; its kernel can mount what engines need."""
    found = SimpleNamespace(
        bundle=RECORD, config={"EXT4_FS": "y", "VIRTIO_BLK": "y"}, kernel=Path("/b/vmlinux"),
        root=Disk("/b/disk.raw", mode=DiskMode.OVERLAID), file=lambda name: Path("/b") / name,
        system=SimpleNamespace(kernel="6.12.7-cloud", disk=DISK, init=SimpleNamespace(path="/init")),
    )  # fmt: skip
    monkeypatch.setattr(bundle_folder, "load", lambda *_: found)
    monkeypatch.setattr(packaged_baseline, "provide", lambda *given: f"packaged {given[-1]}")
    return found


def test_a_bundle_is_started_as_it_was_fitted_but_for_its_network(fitted: SimpleNamespace, tmp_path: Path) -> None:
    around = machine_around._fitted(Path("/b"), Store(tmp_path))
    machine = around.machine
    assert RECORD.network and not machine.network and machine.clock is Clock.INSTRUCTIONS
    assert (machine.kernel, machine.words, machine.disks) == ("/b/vmlinux", RECORD.words, (fitted.root,))
    assert around.root == SystemRoot("/dev/vda1", "ext4", True, "/init")
    assert (around.kernel, around.system_map) == ("6.12.7 as fitted", "/b/System.map")
    # Names of its functions are those of the packaged kernel of its source.
    assert str(around.packaged) == "packaged 6.12.7-cloud"
    assert len(around.which) == 12


def test_a_kernel_that_cannot_mount_the_images_files_is_refused(fitted: SimpleNamespace, tmp_path: Path) -> None:
    del fitted.config["EXT4_FS"]
    with pytest.raises(UserInputError, match=r"lacks EXT4_FS$") as caught:
        machine_around._fitted(Path("/b"), Store(tmp_path))
    assert "--keep EXT4_FS" in (caught.value.hint or "")


def test_a_disk_beside_a_bundle_has_its_board(
    fitted: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_around, "_checked", lambda one: Path(one.removeprefix("vm:")))
    monkeypatch.setattr(bundle_folder, "is_bundle", lambda path: path.suffix == "")
    store = Store(tmp_path)
    assert machine_around.board_of(("vm:/a.raw", "vm:/b"), store) == "q35"
    assert machine_around.board_of(("vm:/a.raw",), store) == ""
    others = iter((RECORD, bundle(image=None, machine="microvm", root="disk.raw")))
    monkeypatch.setattr(bundle_folder, "load", lambda *_: SimpleNamespace(bundle=next(others)))
    assert machine_around.board_of(("vm:/b", "vm:/c"), store) == ""
