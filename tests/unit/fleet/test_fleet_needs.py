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
from vmtailor.fleet.model.entry import FleetEntry
from vmtailor.fleet.model.fleet_record import FleetImage, FleetRecord, ImageStanding

PINNED = FleetImage(FleetEntry("web", "docker://web", digest="sha256:" + "0" * 64), ImageStanding.DONE)


def needs(one: FleetImage, folder: Path, *, kernel: str = "", tools: str = "tools") -> str:
    known = FleetRecord("list", __version__, "tools", (one,))
    asked = WorkOptions(
        on="local:1", certificates=None, authfile=None, failed_only=False, dry_run=True, kernel=kernel, json=False
    )
    return fleet_work._needs(one, folder, known, tools, asked)


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
