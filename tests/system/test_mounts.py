# SPDX-License-Identifier: Apache-2.0
"""`run -v` in real machines: folders, files alone and volumes, who owns what, and what a hostile folder does.

The kernel is compiled for these tests: that of the session, with what they need."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from tests.fakes.program import run_program, started

from vmtailor.base.errors import ExitCode

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.attack]

#: Gives the guest's shell its tools.
_TOOLS = "/bin/busybox --install -s /bin; "


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def run(bundle: Path, tmp_path: Path, mounts: list[str], script: str) -> list[str]:
    """The lines that a script in the guest prints."""
    options = [word for mount in mounts for word in ("-v", mount)]
    ended = run_program(tmp_path, "run", *options, bundle, _TOOLS + script, timeout_s=600)
    assert ended.code == 0, ended.stderr
    return ended.stdout.splitlines()


@pytest.mark.usefixtures("state")
def test_folders_and_files_in_a_hostile_neighbourhood(keeper: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    folder, closed = tmp_path / "a b", tmp_path / "closed"
    for one in (folder, closed):
        one.mkdir()
        (one / "file").write_text("inside")
    (folder / "out").symlink_to(tmp_path / "secret")
    (folder / "up").symlink_to("../secret")
    os.mkfifo(folder / "fifo")
    script = (
        "cd '/m n'; cat file; echo; cat out up ../secret /m*/../../secret 2>&1 | grep -c 'No such file'; "
        "echo made > new; mknod device c 1 3 2>&1; mkdir -p deep/er; mv new deep/er/moved; "
        "echo x 2>&1 > /closed/new; rm /closed/file 2>&1; cat /alone; echo x >> /alone; grep -c virtiofs /proc/mounts"
    )
    mounts = [f"{folder}:/m n", f"{closed}:/closed:ro", f"{closed / 'file'}:/alone:ro"]
    said = run(keeper, tmp_path, mounts, script)
    assert said[0] == "inside" and said[1] == "4" and "Operation not permitted" in said[2]
    assert sum("Read-only file system" in line for line in said) >= 1 and said[-1].endswith("3")
    assert (folder / "deep/er/moved").read_text() == "made\n" and not (folder / "device").exists()
    assert (folder / "deep/er/moved").stat().st_uid == os.geteuid()
    assert [one.name for one in closed.iterdir()] == ["file"] and (closed / "file").read_text() == "inside"


def test_a_volume_begins_as_the_image_and_outlives_the_machine(keeper: Path, tmp_path: Path, state: Path) -> None:
    show = "stat -c '%u %a' /var/kept/first; cat /var/kept/*; ls -A /var/kept | wc -l"
    assert run(keeper, tmp_path, ["kept:/var/kept"], f"{show}; echo second > /var/kept/z") == ["5 4755", "image", "1"]
    assert run(keeper, tmp_path, ["kept:/var/kept"], show) == ["5 4755", "image", "second", "2"]
    assert run(keeper, tmp_path, ["bare:/var/kept:nocopy"], "ls -A /var/kept | wc -l") == ["0"]
    listed = json.loads(run_program(tmp_path, "volume", "ls", "--json", timeout_s=60).stdout)
    assert [(one["Name"], one["InUse"]) for one in listed["volumes"]] == [("bare", False), ("kept", False)]
    assert (state / "vmtailor/volumes/kept/disk.raw").stat().st_blocks * 512 < 64 << 20


@pytest.mark.usefixtures("state")
def test_a_server_that_dies_ends_the_machine_with_a_sentence(keeper: Path, tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    with started(tmp_path, "run", "-v", f"{folder}:/m", keeper, _TOOLS + "touch /m/up; sleep 600") as program:
        deadline = time.monotonic() + 300
        while not (folder / "up").exists():
            assert time.monotonic() < deadline and program.process.poll() is None, program.stderr
            time.sleep(0.1)
        os.kill(server_of(folder), signal.SIGKILL)
        assert program.process.wait(120) == ExitCode.RUN
    assert f"the file server of {folder} ended (signal 9), and the machine with it" in program.stderr


def server_of(folder: Path) -> int:
    """The process that serves a folder: the child of the watcher that names it."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and str(folder).encode() in (entry / "cmdline").read_bytes():
            children = (entry / "task" / entry.name / "children").read_text().split()
            found = [one for one in children if b"virtiofsd" in Path(f"/proc/{one}/cmdline").read_bytes()]
            if found:
                return int(found[0])
    raise AssertionError("no server")
