# SPDX-License-Identifier: Apache-2.0
"""Servers of the distribution, each with an exercise of its own: verified with at most one repair."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.program import run_program
from tests.system.conftest import FIT_S, layout_of

pytestmark = [pytest.mark.system, pytest.mark.slow]

SERVERS = Path(__file__).parents[1] / "data" / "servers"


def fitted(name: str, folder: Path, *options: str) -> dict[str, Any]:
    """What `fit --json` says of a server of `tests/data/servers`."""
    layout = layout_of(SERVERS / name, folder)
    exercise = SERVERS / name / "exercise.toml"
    ended = run_program(
        folder,
        "fit", f"oci:{layout}", "--exercise", str(exercise), "--json", "--repeat", "1", "-o", str(folder / "bundle"),
        *options, timeout_s=FIT_S,
    )  # fmt: skip
    assert ended.code == 0, ended.stderr[-3000:]
    document: dict[str, Any] = json.loads(ended.stdout)
    return document


@pytest.mark.parametrize(("name", "absent"), [("haproxy", {"/sys/devices/system/node"}), ("memcached", set())])
def test_a_server_is_verified_with_at_most_one_repair(name: str, absent: set[str], tmp_path: Path) -> None:
    document = fitted(name, tmp_path)
    assert document["verified"] and document["repairs"] <= 1 and document["degraded"] == []
    assert {one["arguments"].split(",")[0] for one in document["absent"]} == absent
    assert document["tailored"]["unmeasured"] == {}


def test_servers_with_the_wide_margin_share_a_kernel(tmp_path: Path) -> None:
    """One is compiled, or none; no server needs a repair."""
    kernels = set()
    for name in ("mosquitto", "unbound", "tinyproxy", "vsftpd"):
        (tmp_path / name).mkdir()
        document = fitted(name, tmp_path / name, "--margin", "reachable+server")
        assert document["verified"] and document["repairs"] == 0 and document["degraded"] == []
        kernels.add(document["kernel"]["digest"])
    assert len(kernels) == 1
