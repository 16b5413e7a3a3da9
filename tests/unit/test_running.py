# SPDX-License-Identifier: Apache-2.0
"""`run` with a QEMU that is none: a machine whose init never speaks, and one that breaks."""

from __future__ import annotations

from pathlib import Path

import pytest

from vmtailor.base.errors import GuestError, UserInputError
from vmtailor.drivers import qemu_program
from vmtailor.model.bundle import Bundle
from vmtailor.model.image import ImageConfig
from vmtailor.model.machine import Accelerator, MachineKind, PublishedPort
from vmtailor.model.plan import RootFormat
from vmtailor.pipeline import bundling, running
from vmtailor.pipeline.bundles import load_bundle
from vmtailor.pipeline.running import RunOptions, run_bundle

FAKE = Path(__file__).parents[1] / "fakes" / "qemu-system"


@pytest.fixture(autouse=True)
def fake_qemu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(qemu_program.BINARY_VARIABLE, str(FAKE))


def options(folder: Path, what: str) -> RunOptions:
    for name in ("vmlinux", "root"):
        (folder / name).write_bytes(b"x" * 512)
    bundle = Bundle(
        name="x", image_reference="oci:x", image_digest="", image=ImageConfig("amd64"), kernel="vmlinux",
        kernel_version="6.12", kernel_config="config", system_map="map", root="root", root_format=RootFormat.EROFS,
        machine=MachineKind.MICROVM, cpus=1, memory_bytes=64 << 20, network=False, words=(f"fake={what}",), sources=(),
    )  # fmt: skip
    bundling.seal(folder, bundle)
    return RunOptions(folder, accelerator=Accelerator.TCG)


def test_an_init_that_never_speaks_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "START_S", 1.0)
    with pytest.raises(GuestError, match="not started within 1 s") as caught:
        run_bundle(options(tmp_path, "hang"))
    assert "memory" in caught.value.hint and "fake=hang" in caught.value.details


@pytest.mark.parametrize(("what", "said"), [("panic", "panicked"), ("exit", "by itself"), ("crash", "status")])
def test_a_machine_that_ends_without_the_containers_status(tmp_path: Path, what: str, said: str) -> None:
    with pytest.raises(GuestError, match=said) as caught:
        run_bundle(options(tmp_path, what))
    assert caught.value.hint


def test_a_port_needs_a_network(tmp_path: Path) -> None:
    from dataclasses import replace

    with pytest.raises(UserInputError, match="no port can be published"):
        run_bundle(replace(options(tmp_path, "exit"), ports=(PublishedPort("127.0.0.1", 1, 1),)))


def test_a_bundle_that_lacks_a_file(tmp_path: Path) -> None:
    options(tmp_path, "exit")
    (tmp_path / "root").unlink()
    with pytest.raises(UserInputError, match="lacks its file root"):
        load_bundle(tmp_path)
