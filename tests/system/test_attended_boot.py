# SPDX-License-Identifier: Apache-2.0
"""Systems with an init of their own, booted from their disks with their own kernels, and driven by an exercise: for
real, with a system of one program."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.fakes import systems
from tests.fakes.program import Ended, finish, run_program, started
from tests.system.conftest import EXAMPLES

from vmtailor.base.cache.store import Store
from vmtailor.drivers.distribution import packaged_baseline, selection
from vmtailor.model.architecture import named, presumed
from vmtailor.model.kernel import KernelBaseline

pytestmark = pytest.mark.system
ENGINES = EXAMPLES.parent / "benchmarks" / "engines"

EXERCISE = """
[ready]
kind = "http"
port = 80

[[load]]
kind = "http"
port = 80
repeat = 3
[load.expect]
contains = "hello from a system"

[[load]]
kind = "command"
argv = ["grep", "-c", "rw,", "/proc/mounts"]

[[load]]
kind = "command"
argv = ["touch", "/written"]

[[load]]
kind = "host-command"
argv = ["true"]
"""

UP = """
[ready]
kind = "http"
port = 80

"""


@pytest.fixture(scope="module")
def kernel() -> KernelBaseline:
    return packaged_baseline.provide(selection.of_host(), presumed(), Store())


def tree_of(folder: Path, kernel: KernelBaseline, rc: str = systems.RC) -> Path:
    return systems.busybox_tree(folder / "root", Path(kernel.vmlinuz), Path(kernel.modules_dir), kernel.release, rc=rc)


def disk_of(folder: Path, kernel: KernelBaseline, rc: str = systems.RC) -> Path:
    return systems.ext4(folder / "disk.raw", tree_of(folder, kernel, rc), size_mib=48)


def partitioned(folder: Path, kernel: KernelBaseline) -> Path:
    return systems.partitioned(folder / "disk.raw", tree_of(folder, kernel), root_mib=48)


def qcow2(folder: Path, kernel: KernelBaseline) -> Path:
    made = folder / "disk.qcow2"
    systems.tool("qemu-img", "convert", "-c", "-O", "qcow2", partitioned(folder, kernel), made)
    return made


def boot(
    folder: Path, disk: Path, exercise: str, *options: str, timeout_s: float = 400
) -> tuple[Ended, dict[str, Any]]:
    (folder / "x.toml").write_text(exercise)
    ended = run_program(
        folder, "boot", f"disk:{disk}", "-x", folder / "x.toml", "-n", "1", "-o", folder / "out", "--json",
        "--timeout", str(timeout_s), *(options or ("--memory", "256M")), timeout_s=timeout_s + 60,
    )  # fmt: skip
    found = msgspec.json.decode(ended.stdout)["boots"][0]["boot"] if ended.stdout else {}
    return ended, found


def test_a_system_is_driven_and_shuts_down_and_its_disk_stays_as_it_is(kernel: KernelBaseline, tmp_path: Path) -> None:
    disk = disk_of(tmp_path, kernel)
    before = disk.read_bytes()
    ended, found = boot(tmp_path, disk, EXERCISE)
    assert ended.code == 0, ended.stderr
    assert found["outcome"] == "ready" and not found["failures"]
    names = [mark["name"] for mark in found["milestones"]]
    assert [name for name in names if name in ("attendant", "ready", "load", "load_end", "stop")] == [
        "attendant", "ready", "load", "load_end", "stop"
    ]  # fmt: skip
    assert disk.read_bytes() == before and not ended.left_over and not ended.left_files
    console = (tmp_path / "out" / "base-1" / "console.log").read_text(errors="replace")
    assert "tiny: up" in console and "reboot: Restarting system" in console


@pytest.mark.parametrize("make", [pytest.param(partitioned, marks=pytest.mark.slow), qcow2])
def test_a_system_on_a_partition_is_driven_and_its_disk_stays_as_it_is(
    make: Callable[[Path, KernelBaseline], Path], kernel: KernelBaseline, tmp_path: Path
) -> None:
    disk = make(tmp_path, kernel)
    before = disk.read_bytes()
    # On the instruction clock, as it is fitted: all but the program on the host.
    asked = EXERCISE.replace('kind = "host-command"\nargv = ["true"]', 'kind = "command"\nargv = ["sleep", "0"]')
    ended, found = boot(tmp_path, disk, asked, "--memory", "256M", "--clock", "instructions")
    assert ended.code == 0, ended.stderr
    assert found["outcome"] == "ready" and not found["failures"] and found["container"]["requests"] == 6
    assert disk.read_bytes() == before and not ended.left_over and not ended.left_files


@pytest.mark.slow
def test_the_guests_time_stands_still_while_nobody_reads_what_it_says(kernel: KernelBaseline, tmp_path: Path) -> None:
    """On the instruction clock. It says more than a socket would take, and has a second to shut down."""
    disk, exercise = disk_of(tmp_path, kernel), tmp_path / "x.toml"
    exercise.write_text(f"{UP}[stop]\nargv = ['reboot']\ntimeout_s = 1\n")
    words = ("boot", f"disk:{disk}", "-x", exercise, "--clock", "instructions", "--memory", "256M", "-n", "1", "--json")
    with started(tmp_path, *words, "-o", tmp_path / "out") as running:
        while running.process.poll() is None:
            held(running.process.pid, 2.0)
            time.sleep(0.2)
        ended = finish(running, 60)
    assert ended.code == 0, ended.stderr
    assert not msgspec.json.decode(ended.stdout)["boots"][0]["boot"]["failures"]


def held(pid: int, seconds: float) -> None:
    """A process that does nothing for so long. It may have ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(pid, signal.SIGCONT)


def test_ready_by_a_line_of_the_console_and_what_goes_wrong_is_said(kernel: KernelBaseline, tmp_path: Path) -> None:
    wrong = """
    [ready]
    kind = "log"
    pattern = "^tiny: up"
    [[load]]
    kind = "command"
    argv = ["grep", "no such text", "/etc/inittab"]
    [[load]]
    kind = "command"
    argv = ["no-such-program"]
    """
    ended, found = boot(tmp_path, disk_of(tmp_path, kernel), wrong)
    assert ended.code == 5 and found["outcome"] == "wrong"
    text = " ".join(found["failures"])
    assert (
        "load step 1 (grep no such text /etc/inittab): 0 of 1 right" in text and "load step 2 (no-such-program)" in text
    )


def test_a_system_that_starts_again_and_again_is_no_success(kernel: KernelBaseline, tmp_path: Path) -> None:
    ended, found = boot(tmp_path, disk_of(tmp_path, kernel, systems.RC + "reboot -f\n"), EXERCISE)
    assert ended.code == 5 and found["outcome"] == "stopped"
    assert "the machine ended by itself" in " ".join(found["failures"])


@pytest.mark.slow
def test_the_small_system_passes_its_exercise_on_the_instruction_clock(tmp_path: Path) -> None:
    disk = tmp_path / "small.raw"
    subprocess.run([sys.executable, str(EXAMPLES / "build.py"), "small-system", str(disk)], check=True)
    exercise = (EXAMPLES / "small-system" / "exercise.toml").read_text()
    ended, found = boot(tmp_path, disk, exercise, "--memory", "512M", "--clock", "instructions")
    assert ended.code == 0, ended.stderr
    assert found["outcome"] == "ready" and not found["failures"]
    assert not ended.left_over and not ended.left_files


def built_for(architecture: str, folder: Path | str, out: Path) -> Path:
    row = named(architecture)
    for program in (row.emulator.program, f"{row.kernel.cross}gcc"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not here")
    build = [sys.executable, str(EXAMPLES / "build.py"), str(folder), str(out / "disk.raw"), "--arch", architecture]
    subprocess.run(build, check=True, timeout=900)
    return out / "disk.raw"


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["arm64", "mips64el"])
def test_the_small_system_of_another_processor_passes_its_exercise(architecture: str, tmp_path: Path) -> None:
    """By its own kernel, with its console on the board's port and the attendant on the other."""
    row, disk = named(architecture), built_for(architecture, "small-system", tmp_path)
    exercise = (EXAMPLES / "small-system" / "exercise.toml").read_text()
    options = ("--memory", "512M", "--clock", "instructions")
    ended, found = boot(tmp_path, disk, exercise, *options, timeout_s=1800)
    assert ended.code == 0, ended.stderr
    assert found["outcome"] == "ready" and not found["failures"] and not found["failed_units"]
    assert found["command"][0].endswith(row.emulator.program)
    console = (tmp_path / "out" / "base-1" / "console.log").read_text(errors="replace")
    assert "Linux version" in console and "reboot: Restarting system" in console
    assert not ended.left_over and not ended.left_files


@pytest.mark.slow
def test_a_loongson_machine_hosts_containers(tmp_path: Path) -> None:
    """podman makes an image of what is on the disk, and its containers answer."""
    disk = built_for("mips64el", ENGINES, tmp_path)
    exercise = (ENGINES / "exercise-podman.toml").read_text()
    options = ("--memory", "1G", "--clock", "instructions")
    ended, found = boot(tmp_path, disk, exercise, *options, timeout_s=3600)
    assert ended.code == 0, ended.stderr
    assert found["outcome"] == "ready" and not found["failures"]
    assert not ended.left_over and not ended.left_files
