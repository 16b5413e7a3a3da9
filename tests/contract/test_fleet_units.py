# SPDX-License-Identifier: Apache-2.0
"""Units of a fleet, read by systemd itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from vmtailor.base.process import require_tool
from vmtailor.fleet.manifests import systemd_units
from vmtailor.fleet.manifests.manifest_wishes import ManifestWishes

pytestmark = pytest.mark.contract


def _verified(path: Path) -> tuple[int, str]:
    read = subprocess.run(
        [require_tool("systemd-analyze"), "verify", "--man=no", path],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return read.returncode, read.stderr


def test_systemd_reads_each_unit(tmp_path: Path) -> None:
    """systemd wants the programs there; podman need not be."""
    for name, text in systemd_units.files(ManifestWishes(cache_url="s3://bucket/prefix")).items():
        path = tmp_path / name.replace("@.", "@node1.")
        path.write_text(text.replace("/usr/bin/podman", "/bin/true"))
        assert _verified(path) == (0, ""), name
        path.write_text(text.replace("/usr/bin/podman", "/bin/true").replace("MemoryMax", "MemoryMost"))
        assert "MemoryMost" in _verified(path)[1]
