# SPDX-License-Identifier: Apache-2.0
"""Units of exports, read by systemd itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.unit.test_monitor_targets import MMIO, PCI, export

from vmtailor.base.process import require_tool
from vmtailor.drivers.targets.target import ExportWishes

pytestmark = pytest.mark.contract


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize("env", [(), ("SECRET=1",)], ids=["any-user", "root"])
@pytest.mark.parametrize("target", ["qemu", "firecracker", "cloud-hypervisor"])
def test_systemd_reads_each_unit(target: str, env: tuple[str, ...], tmp_path: Path) -> None:
    """The unit says where the folder has to be; systemd wants the programs there."""
    done = export(tmp_path, target, PCI if target == "cloud-hypervisor" else MMIO, ExportWishes(env=env))
    text = (done.folder / "web.service").read_text().replace("/var/lib/machines/web", str(done.folder))
    unit = tmp_path / "web.service"
    unit.write_text(text)
    read = subprocess.run(
        [require_tool("systemd-analyze"), "verify", "--man=no", unit],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (read.returncode, read.stderr) == (0, "")
    assert ("DynamicUser=yes" in text) == (not env)
    assert ("ExecStartPre=+" in text) == (target != "qemu")
