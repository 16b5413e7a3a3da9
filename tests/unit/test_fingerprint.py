# SPDX-License-Identifier: Apache-2.0
"""The fingerprint of a host's tools: equal where results can be shared, and what differs is named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from vmtailor.base import natives
from vmtailor.base.errors import HostError
from vmtailor.base.files import own_code, records
from vmtailor.base.natives import Natives
from vmtailor.drivers.host import fingerprint as host_fingerprint
from vmtailor.drivers.kernel.make import Toolchain
from vmtailor.drivers.monitors import monitors
from vmtailor.drivers.rootfs import rootfs
from vmtailor.model.host_fingerprint import ABSENT, Fingerprint

FOUND = Fingerprint("x86_64", (("vmtailor", "1.0 (aa)"), ("gcc", "14.2"), ("QEMU", "10.0")))


@pytest.fixture
def parts(tmp_path: Path) -> Natives:
    names = ("init", "stage1", "client", "load-client", "builtin", "attendant", "sampler", "collector", "small-init")
    for name in names:
        (tmp_path / name).write_text(name)
    return Natives(tmp_path)


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Tools that need no program. Returns the one file of firmware."""
    firmware = tmp_path / "bios.bin"
    firmware.write_text("firmware")
    monkeypatch.setattr(Toolchain, "describe", lambda self: "gcc 14.2, ld 2.44")
    monkeypatch.setattr(rootfs, "identity", lambda form: f"1 mkfs.{form}")
    monkeypatch.setattr(type(monitors.usual()), "identity", lambda self, name, parts: ("QEMU 10.0", firmware))
    return firmware


def test_the_same_tools_have_one_digest_and_a_record_keeps_it() -> None:
    assert FOUND.digest == replace(FOUND).digest
    assert records.from_bytes(Fingerprint, records.to_bytes(FOUND)) == FOUND
    assert not FOUND.differences(replace(FOUND))


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ((("vmtailor", "1.0 (aa)"), ("gcc", "12.2"), ("QEMU", "10.0")), ("gcc: 14.2 here, 12.2 there",)),
        ((("vmtailor", "1.0 (aa)"), ("gcc", "14.2")), (f"QEMU: 10.0 here, {ABSENT} there",)),
        ((*FOUND.tools, ("ccache", "used")), (f"ccache: {ABSENT} here, used there",)),
    ],
)
def test_each_tool_that_differs_is_named(other: tuple[tuple[str, str], ...], said: tuple[str, ...]) -> None:
    different = replace(FOUND, tools=other)
    assert FOUND.differences(different) == said
    assert different.digest != FOUND.digest


def test_another_processor_is_a_difference() -> None:
    assert FOUND.differences(replace(FOUND, architecture="arm64")) == ("processor: x86_64 here, arm64 there",)


def test_firmware_natives_and_our_own_code_are_in_it(
    parts: Natives, tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = host_fingerprint.fingerprint(parts)
    assert {"compiler and linker", "ccache", "maker of erofs", "QEMU"} <= set(dict(before.tools))
    tools.write_text("another firmware")
    (said,) = before.differences(host_fingerprint.fingerprint(parts))
    assert said.startswith("QEMU bios.bin: ")
    tools.write_text("firmware")
    parts.init.write_text("another init")
    (said,) = before.differences(host_fingerprint.fingerprint(parts))
    assert said.startswith("native init: ")
    parts.init.write_text("init")
    monkeypatch.setattr(own_code, "digest_of_all", lambda: "f" * 64)
    (said,) = before.differences(host_fingerprint.fingerprint(parts))
    assert said.startswith("vmtailor: ")


def test_a_tool_that_is_missing_is_said(parts: Natives, tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*args: object) -> str:
        raise HostError("the program 'x' is not installed")

    monkeypatch.setattr(rootfs, "identity", missing)
    monkeypatch.setattr(type(monitors.usual()), "identity", missing)
    found = dict(host_fingerprint.fingerprint(parts).tools)
    assert (found["maker of erofs"], found["QEMU"]) == (ABSENT, ABSENT)


def test_this_host_has_one() -> None:
    found = host_fingerprint.fingerprint(natives.locate())
    assert found == host_fingerprint.fingerprint()
    assert len(found.digest) == 64
