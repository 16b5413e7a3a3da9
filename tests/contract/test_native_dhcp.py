# SPDX-License-Identifier: Apache-2.0
"""The DHCP client against a server that renews its lease, and takes it back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from vmtailor.base.natives import locate

pytestmark = [
    pytest.mark.contract,
    pytest.mark.slow,  # a minute: no lease is renewed earlier
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can open /dev/net/tun here"),
]
SERVER = Path(__file__).parents[1] / "fakes" / "dhcp_server.py"


def test_a_lease_is_renewed_and_another_one_asked_for_when_it_is_taken_back() -> None:
    argv = ["unshare", "--map-root-user", "--net", sys.executable, str(SERVER), str(locate().builtin)]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=200, check=False)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    asked = found["asked"]
    assert [(one["kind"], one["own"], one["to"]) for one in asked] == [
        (1, "0.0.0.0", "255.255.255.255"), (3, "0.0.0.0", "255.255.255.255"),
        (3, "10.9.0.5", "10.9.0.1"), (3, "10.9.0.5", "10.9.0.1"),
        (1, "0.0.0.0", "255.255.255.255"), (3, "0.0.0.0", "255.255.255.255"),
    ]  # fmt: skip
    assert [one["has"] for one in asked] == [[], [], ["10.9.0.5"], ["10.9.0.5"], [], []]
    assert found["has"] == ["10.9.0.6"] and found["said"] == "10.9.0.5/24,10.9.0.1,10.9.0.1\n"
    assert all(one["name"] == "web" for one in asked) and 29 < asked[2]["s"] < 40
