# SPDX-License-Identifier: Apache-2.0
"""The machine that hosts containers, of examples/debian-vm, fitted for real: hours with nothing of it in the cache."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.fakes.program import run_program
from tests.fakes.tools import load_tool
from tests.system.conftest import EXAMPLES
from tests.system.test_exported_machines import answer, exported, free_port, started
from tests.system.test_exported_systems import with_unit

from vmtailor.base.files import records
from vmtailor.model.fit_run import FitRun
from vmtailor.stages import exercise_file

pytestmark = [pytest.mark.system, pytest.mark.slow]

EXAMPLE = EXAMPLES / "debian-vm"
#: Starts a web server in a container, at a port of the machine.
WEB = """
[Unit]
After=docker.service
Requires=docker.service
[Service]
ExecStart=/usr/bin/docker run --rm --name web -p 8080:80 example-busybox httpd -f -p 80 -h /www
[Install]
WantedBy=multi-user.target
"""
#: Seconds for the disk, and for a fit on a busy host of two cores.
DISK_S, FIT_S = 3600.0, 6 * 3600.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("host")


@pytest.fixture(scope="module")
def fitted(folder: Path) -> dict[str, Any]:
    made = folder / "vm"
    subprocess.run([sys.executable, str(EXAMPLE / "build"), str(made)], check=True, timeout=DISK_S)
    disk = made / "disk.raw"
    before = sha256(disk)
    ended = run_program(
        folder / "fit", "fit", f"disk:{disk}", "-x", EXAMPLE / "exercise.toml", "--memory", "2G", "--machine", "q35",
        "--repeat", "2", "-o", folder / "bundle", "--json", timeout_s=FIT_S,
    )  # fmt: skip
    assert ended.code == 0, ended.stderr
    assert not ended.left_over and not ended.left_files and sha256(disk) == before
    found: dict[str, Any] = msgspec.json.decode(ended.stdout)
    return found


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def test_every_step_passes_and_nothing_is_newly_complained_of(fitted: dict[str, Any], folder: Path) -> None:
    assert fitted["verified"] and fitted["proof"] == "exercised with load" and not fitted["unexplained"]
    asked = exercise_file.load_system(EXAMPLE / "exercise.toml")
    run = records.load(FitRun, folder / "bundle" / "run.json")
    assert len(asked.load) >= 30 and len(run.exercise.load) == len(asked.load)
    assert {one.name for one in asked.says} == {"engine", "engine-log"}


def test_the_figures_are_those_that_the_case_study_tells(fitted: dict[str, Any], folder: Path) -> None:
    run = records.load(FitRun, folder / "bundle" / "run.json")
    rows = [row for row in load_tool("bench_host").ROWS if row.goal is not None and not row.units]
    assert len(rows) == 4  # gross and net to systemd, the packed kernel, its symbols
    assert [row.title for row in rows if row.missed(run, "keep")] == []
    before, after = run.baseline, run.tailored
    assert before.init_virtual_us and after.init_virtual_us
    assert after.init_virtual_us < before.init_virtual_us / 8
    assert before.min_memory_bytes and after.min_memory_bytes and after.min_memory_bytes < before.min_memory_bytes


def test_what_an_engine_needs_is_kept_with_its_reason(fitted: dict[str, Any], folder: Path) -> None:
    run = records.load(FitRun, folder / "bundle" / "run.json")
    kept = {one.id: one for one in run.plan.symbols if one.is_kept}
    for name in ("OVERLAY_FS", "VETH", "BRIDGE", "MEMCG", "SECCOMP_FILTER", "EXT4_FS"):
        assert kept[name].reasons, name
    assert "BLK_DEV_INITRD" not in kept


def test_an_exported_host_runs_containers_without_vmtailor(
    fitted: dict[str, Any], folder: Path, tmp_path: Path
) -> None:
    port = free_port()
    out = exported(folder / "bundle", tmp_path, "--to", "qemu", "-p", f"{port}:8080")
    with_unit(out / "disk.raw", "web.service", WEB)
    with started("./start", cwd=out):
        assert b"a page from a container" in answer(f"http://127.0.0.1:{port}/", 600.0)
