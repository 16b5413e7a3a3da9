# SPDX-License-Identifier: Apache-2.0
"""Servers of the distribution, each with an exercise of its own: verified with at most one repair.

`tests/data/servers` has more of them than are fitted here; each takes a kernel of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.fakes.program import run_program
from tests.system.conftest import FIT_S, layout_of

pytestmark = [pytest.mark.system, pytest.mark.slow]

SERVERS = Path(__file__).parents[1] / "data" / "servers"


@pytest.mark.parametrize(("name", "absent"), [("haproxy", {"/sys/devices/system/node"}), ("memcached", set())])
def test_a_server_is_verified_with_at_most_one_repair(name: str, absent: set[str], tmp_path: Path) -> None:
    layout = layout_of(SERVERS / name, tmp_path)
    exercise = SERVERS / name / "exercise.toml"
    ended = run_program(
        tmp_path,
        "fit", f"oci:{layout}", "--exercise", str(exercise), "--json", "--boots", "1", "-o", str(tmp_path / "bundle"),
        timeout_s=FIT_S,
    )  # fmt: skip
    assert ended.code == 0, ended.stderr[-3000:]
    document = json.loads(ended.stdout)
    assert document["verified"] and document["repairs"] <= 1 and document["degraded"] == []
    assert {one["arguments"].split(",")[0] for one in document["absent"]} == absent
    assert document["tailored"]["unmeasured"] == {}
