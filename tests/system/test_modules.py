# SPDX-License-Identifier: Apache-2.0
"""A container that needs modules of the kernel: the baseline loads what was asked for, and the plan keeps it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fakes.program import assert_nothing_left, run_program

pytestmark = pytest.mark.system

ROOT = Path(__file__).parents[2]
HASHER = ROOT / "tests/guests/hasher"
LISTER = ROOT / "tests/guests/lister"


def test_modules_that_the_container_asks_for_are_loaded_and_planned(tmp_path: Path) -> None:
    layout = tmp_path / "layout"
    subprocess.run([sys.executable, str(ROOT / "examples/build.py"), str(HASHER), str(layout)], check=True, timeout=300)
    ended = run_program(
        tmp_path / "plan", "plan", f"oci:{layout}", "-x", HASHER / "exercise.toml", "--json", timeout_s=1800
    )
    assert ended.code == 0, ended.stderr
    assert_nothing_left(ended)
    symbols = {
        setting["name"]: (setting["value"], one["reasons"])
        for one in json.loads(ended.stdout)["changes"]
        for setting in one["settings"]
        if setting["kind"] == "config"
    }
    for name in ("CRYPTO_USER_API_HASH", "CRYPTO_USER_API"):
        assert symbols[name][0] == "y"
    reasons = [reason["text"] for reason in symbols["CRYPTO_USER_API_HASH"][1]]
    assert any("made the kernel load algif_hash" in text for text in reasons), reasons
    hashes = [name for name in symbols if name.startswith("CRYPTO_SHA256")]
    assert any("algorithm sha256" in r["text"] for name in hashes for r in symbols[name][1]), hashes


@pytest.mark.slow
def test_what_the_tracer_asks_for_is_no_demand_of_the_container(tmp_path: Path) -> None:
    layout = tmp_path / "layout"
    subprocess.run([sys.executable, str(ROOT / "examples/build.py"), str(LISTER), str(layout)], check=True, timeout=300)
    ended = run_program(tmp_path / "trace", "trace", f"oci:{layout}", "-x", LISTER / "exercise.toml", timeout_s=600)
    assert ended.code == 0, ended.stderr
    # The boot with each call seen would be repeated with the module that strace made the kernel ask for.
    assert "netlink_diag" not in ended.stderr
    assert "every system call" in ended.stderr or not ended.stderr  # a trace that is found again says nothing
