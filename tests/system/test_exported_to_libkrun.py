# SPDX-License-Identifier: Apache-2.0
"""A bundle exported to libkrun: its program is compiled against the library, and starts the machine in the lab."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.fakes.program import run_program
from tests.system.conftest import Fitted
from tests.system.test_exported_machines import answer, free_port

from vmtailor.drivers.lab.lab_monitor import LabMonitor
from vmtailor.drivers.libkrun.libkrun_monitor import LibkrunMonitor
from vmtailor.drivers.monitors import lab_folder, monitors
from vmtailor.drivers.monitors.monitor import Orders, StartPlace
from vmtailor.model.architecture import of_host
from vmtailor.model.machine import Machine, PublishedPort

pytestmark = [pytest.mark.system, pytest.mark.slow]
TREE = Path(__file__).parents[2]
#: Starts the program where the lab has the exported files, which is a disk that is only read.
_STARTS = "#!/bin/sh\ncp /mnt/start /run/start && chmod 755 /run/start && cd /mnt && exec /run/start\n"


class ExportedFolder(LibkrunMonitor):
    """Starts an exported folder as it is, with nothing of a machine but its network."""

    folder: Path

    def _orders(self, machine: Machine, kernel: str, place: StartPlace) -> Orders:
        files = ("start", "vmlinux", "root.erofs")
        return Orders(("start",), {name: (self.folder / name).read_bytes() for name in files})


@pytest.fixture(scope="module")
def library() -> Path:
    """The library, of which the lab has the same build."""
    tools = TREE / "tools"
    subprocess.run([sys.executable, tools / "lab.py"], check=True, stdout=subprocess.PIPE, timeout=1500)
    if "libkrun" not in lab_folder.load(of_host().name)[0].monitors:
        pytest.skip("the lab was built without libkrun")
    said = subprocess.run([sys.executable, tools / "build_libkrun.py"], check=True, capture_output=True, text=True)
    return Path(said.stdout.strip())


def test_the_program_starts_the_machine_under_kvm(library: Path, lighttpd: Fitted, tmp_path: Path) -> None:
    """Asked from this host, through the lab's network."""
    out = tmp_path / "out"
    address = "10.0.2.15/24,10.0.2.2"
    ended = run_program(tmp_path, "export", lighttpd.bundle, "--to", "libkrun", "--address", address, "-o", out)
    assert ended.code == 0, ended.stderr
    strict = "CFLAGS=-O2 -Wall -Wextra -Werror -std=c11 -pedantic"
    subprocess.run(["make", f"LIBKRUN={library}", strict], cwd=out, check=True, timeout=60)

    script = tmp_path / "program"
    script.write_text(_STARTS)
    inner = ExportedFolder(monitors.named("libkrun").row)
    inner.folder = out
    port = free_port()
    machine = Machine(
        board=of_host().board_names[0], memory_bytes=256 << 20, kernel=str(out / "vmlinux"), network=True,
        ports=(PublishedPort("127.0.0.1", port, 80),), monitor="lab/libkrun",
    )  # fmt: skip
    with LabMonitor(inner, script).start(machine) as running:
        assert b"<html" in answer(f"http://127.0.0.1:{port}/", 300.0).lower()
        running.serial.wait_readable(1.0)
