# SPDX-License-Identifier: Apache-2.0
"""The lab for real: its disk is built, and a monitor starts a bundle in it under KVM."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fakes.program import run_program
from tests.system.conftest import Fitted

from vmtailor.drivers.host import bundle_folder, verdict_file
from vmtailor.drivers.monitors import lab_folder
from vmtailor.model.architecture import of_host
from vmtailor.model.monitor_verdicts import MonitorPlace

pytestmark = pytest.mark.system
TREE = Path(__file__).parents[2]


#: Variables that name programs of monitors which no package and no registry has.
PROGRAMS = {"firecracker": "VMTAILOR_FIRECRACKER", "cloud-hypervisor": "VMTAILOR_CLOUD_HYPERVISOR"}


@pytest.fixture(scope="module")
def lab() -> dict[str, str]:
    """The lab of the cache, built where there is none of this description; its monitors, with their versions."""
    subprocess.run([sys.executable, TREE / "tools" / "lab.py"], check=True, stdout=subprocess.PIPE, timeout=1500)
    return lab_folder.load(of_host().name)[0].monitors


@pytest.mark.parametrize("monitor", ["qemu", "libkrun", *PROGRAMS])
def test_a_bundle_works_under_kvm(monitor: str, lab: dict[str, str], lighttpd: Fitted, tmp_path: Path) -> None:
    """The exercise, every system call, and the published port, which is asked from this host."""
    program = os.environ.get(PROGRAMS.get(monitor, ""), "")
    if monitor not in lab and not program:
        pytest.skip(f"no program: {PROGRAMS.get(monitor, 'the lab was built without it')}")
    given = ("--program", f"{monitor}={program}") if program else ()
    ended = run_program(
        tmp_path, "verify", lighttpd.bundle, "--on", monitor, "--lab", "--json", *given, timeout_s=900.0
    )
    assert ended.code == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["verified"] and found["on"] == f"lab/{monitor}" and not found["failures"]
    assert (monitor, MonitorPlace.LAB, True) in {
        (one.monitor, one.place, one.passed) for one in verdict_file.read(bundle_folder.load(lighttpd.bundle))
    }


@pytest.mark.usefixtures("lab")
def test_a_monitor_that_does_not_start_says_why(lighttpd: Fitted, tmp_path: Path) -> None:
    """A program that is none of QEMU's: it ends at once."""
    program = tmp_path / "other"
    program.write_bytes(Path("/bin/false").read_bytes())
    program.chmod(0o755)
    arguments = ("verify", lighttpd.bundle, "--on", "qemu", "--lab", "--program", f"qemu={program}")
    ended = run_program(tmp_path, *arguments, timeout_s=600.0)
    assert ended.code == 3 and "did not start" in ended.stderr, ended.stderr
