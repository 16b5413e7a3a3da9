# SPDX-License-Identifier: Apache-2.0
"""The lab for real: its disk is built, and a monitor starts a bundle in it under KVM."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fakes.program import run_program
from tests.system.conftest import Fitted

pytestmark = pytest.mark.system
TREE = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def lab() -> None:
    """The lab of the cache; built where there is none of this description, once with libkrun, which is compiled."""
    subprocess.run([sys.executable, TREE / "tools" / "lab.py"], check=True, stdout=subprocess.PIPE, timeout=5400)


@pytest.mark.usefixtures("lab")
def test_a_bundle_works_in_qemu_under_kvm(lighttpd: Fitted, tmp_path: Path) -> None:
    """The exercise, every system call, and the published port, which is asked from this host."""
    ended = run_program(tmp_path, "verify", lighttpd.bundle, "--on", "qemu", "--lab", "--json", timeout_s=600.0)
    assert ended.code == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["verified"] and found["on"] == "lab/qemu" and not found["failures"]


@pytest.mark.usefixtures("lab")
def test_a_monitor_that_does_not_start_says_why(lighttpd: Fitted, tmp_path: Path) -> None:
    """A program that is none of QEMU's: it ends at once."""
    program = tmp_path / "other"
    program.write_bytes(Path("/bin/false").read_bytes())
    program.chmod(0o755)
    arguments = ("verify", lighttpd.bundle, "--on", "qemu", "--lab", "--program", f"qemu={program}")
    ended = run_program(tmp_path, *arguments, timeout_s=600.0)
    assert ended.code == 3 and "did not start" in ended.stderr, ended.stderr
