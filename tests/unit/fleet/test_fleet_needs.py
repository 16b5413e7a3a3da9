# SPDX-License-Identifier: Apache-2.0
"""Bundles that need another fit, and why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from vmtailor import __version__
from vmtailor.drivers.host import bundle_folder
from vmtailor.fleet.cli import fleet_work
from vmtailor.fleet.cli.fleet_work import WorkOptions
from vmtailor.fleet.model import kernel_wishes
from vmtailor.fleet.model.entry import FleetEntry
from vmtailor.fleet.model.fleet_record import FleetImage, FleetRecord, ImageStanding
from vmtailor.fleet.model.kernel_wishes import KernelWish
from vmtailor.fleet.run import shared_kernels

PINNED = FleetImage(FleetEntry("web", "docker://web", digest="sha256:" + "0" * 64), ImageStanding.DONE)


def needs(one: FleetImage, folder: Path, *, kernel: str = "", tools: str = "tools") -> str:
    known = FleetRecord("list", __version__, "tools", (one,))
    asked = WorkOptions(
        on="local:1", certificates=None, authfile=None, failed_only=False, dry_run=True, kernel=kernel, json=False
    )
    return fleet_work._needs(one, folder, known, tools, asked)


def test_who_shares_a_kernel_keeps_what_the_others_ask_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plans = {"a": {"NET": "y"}, "b": {"NET": "y", "BLOCK": "y"}}
    for name in plans:
        (tmp_path / name).mkdir()
        (tmp_path / name / "bundle.json").write_text("{}")
    side = SimpleNamespace(init_instructions_net=100)

    def wish(name: str, asked: dict[str, str], own: int) -> KernelWish:
        prices = {"BLOCK": 7} if name == "a" else {}
        return KernelWish(name, ("6.12",), asked, frozenset(asked), prices=prices, own=own)

    monkeypatch.setattr(
        bundle_folder,
        "load",
        lambda path: SimpleNamespace(record=lambda *_: SimpleNamespace(plan=plans[path.name], tailored=side)),
    )
    monkeypatch.setattr(kernel_wishes, "of_plan", wish)
    images = tuple(FleetImage(FleetEntry(name, "docker://x"), ImageStanding.DONE) for name in plans)
    gone = FleetImage(FleetEntry("c", "docker://x"), ImageStanding.FAILED)
    known = FleetRecord("list", __version__, "tools", (*images, gone))
    found = shared_kernels.of_folder(tmp_path, known, 1)
    assert found.keep == {"a": ("BLOCK=y",)}
    assert found.why("a") == "it shares a kernel with b, which asks for 1 symbol more" and not found.why("b")
    assert list(found.lines()) == ["kernel 1: a (+1 symbol, 7.0% more instructions to init), b"]
    apart = shared_kernels.of_folder(tmp_path, known, "auto")
    assert not apart.keep and list(apart.lines()) == ["kernel 1: a", "kernel 2: b"]


def test_each_reason_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = SimpleNamespace(bundle=SimpleNamespace(kernel_version="6.12.5"))
    monkeypatch.setattr(bundle_folder, "load", lambda path: bundle)
    assert needs(PINNED, tmp_path) == "its bundle is gone"
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "bundle.json").write_text("{}")
    assert needs(PINNED, tmp_path) == ""
    assert needs(PINNED, tmp_path, kernel="6.12") == ""
    assert needs(PINNED, tmp_path, kernel="6.1") == "its kernel is 6.12.5, 6.1 is asked for"
    assert "tools" in needs(PINNED, tmp_path, tools="others")
    assert "did not work" in needs(replace(PINNED, verified_again=False), tmp_path)
    assert needs(replace(PINNED, standing=ImageStanding.FAILED), tmp_path) == "it failed"
    assert "never finished" in needs(replace(PINNED, standing=ImageStanding.WAITING), tmp_path)
    by_tag = replace(PINNED, entry=FleetEntry("web", "docker://web:1"))
    assert "has no digest" in needs(by_tag, tmp_path)
    assert needs(replace(PINNED, entry=FleetEntry("web", "docker://web@sha256:0")), tmp_path) == ""
