# SPDX-License-Identifier: Apache-2.0
"""Many named machines: started and stopped at once, and supervisors that are killed at any moment. Nothing of them is
left: no processes, sockets, locks, temporary files; `ps` tells the truth, and `rm` works."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.fakes.program import argv_of, children, subreaper
from tests.system.conftest import Fitted, with_image

from vmtailor.booting import run_orders
from vmtailor.drivers.host.machine_folders import MachineFolders

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import bench_exec

pytestmark = pytest.mark.system

BOX = Path(__file__).parents[1] / "guests" / "box"
#: Seconds in which what was killed, or told to end, has ended on a busy host.
PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def box(lighttpd: Fitted, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_image(lighttpd.bundle, BOX, tmp_path_factory.mktemp("box"), network=False)


@dataclass(frozen=True)
class Place:
    """Folders of our own for machines. Who outlives its starter becomes our child."""

    path: Path
    before: frozenset[int]

    @property
    def machines(self) -> Path:
        return self.path / "state/vmtailor/machines"

    @property
    def env(self) -> dict[str, str]:
        return {
            **os.environ, "XDG_STATE_HOME": str(self.path / "state"), "XDG_RUNTIME_DIR": str(self.path / "runtime"),
            "TMPDIR": str(self.path / "tmp"),
        }  # fmt: skip

    def start(self, *words: str | Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            argv_of(*words), env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip

    def call(self, *words: str | Path) -> str:
        """Return what a command prints; it ends well."""
        with self.start(*words) as process:
            out, errors = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, errors
        return out

    def running(self) -> dict[int, str]:
        """Return what we have started, directly or not, and still runs."""
        return {pid: line for pid, line in children().items() if pid not in self.before}

    def assert_clear(self) -> None:
        """Nothing runs, and nothing is left but empty folders."""
        end = time.monotonic() + PATIENCE_S
        while self.running() and time.monotonic() < end:
            time.sleep(0.02)
        _reap()
        assert self.running() == {}
        left = [path for path in self.path.rglob("*") if not path.is_dir()]
        # What quickens a second run of the same bundle is kept, and no machine's.
        assert [path for path in left if "machines" in path.parts or "names" in path.parts] == []
        assert not [path for path in left if path.is_socket()] and not list((self.path / "tmp").iterdir())
        assert not list(self.machines.iterdir()) and not list((self.path / "runtime/vmtailor").iterdir())


def _reap() -> None:
    """Take the ends of what became our children."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    for name in ("state", "runtime", "tmp"):
        (tmp_path / name).mkdir(mode=0o700)
    with subreaper():
        own = Place(tmp_path, frozenset(children()))
        try:
            yield own
        finally:
            for pid in own.running():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            _reap()


UP = 'trap "exit 7" TERM; echo up; while :; do sleep 0.2; done'


@pytest.mark.parametrize("count", [5, pytest.param(20, marks=pytest.mark.slow)])
def test_many_are_started_at_once_and_stopped_by_one_command(box: Path, place: Place, count: int) -> None:
    names = [f"m{number}" for number in range(count)]
    starts = [
        place.start("run", "-d", "--name", name, "--memory", "96M", box, "sh", "-c", UP) for name in names
    ]  # fmt: skip
    said = [start.communicate(timeout=600) for start in starts]
    assert [start.returncode for start in starts] == [0] * count, said
    assert len({out for out, _ in said}) == count
    assert sorted(place.call("ps", "--format", "{{.Names}}").split()) == sorted(names)
    for name in names:
        end = time.monotonic() + PATIENCE_S
        while "up" not in place.call("logs", name):
            assert time.monotonic() < end, name
    assert place.call("stop", "-t", "60", *names).split() == names
    shown = place.call("ps", "-a", "--format", "{{.Names}} {{.Status}}").splitlines()
    assert len(shown) == count and all(" Exited (7) " in line for line in shown), shown
    assert sorted(place.call("rm", *names).split()) == sorted(names)
    place.assert_clear()


@pytest.mark.parametrize("times", [5, pytest.param(100, marks=pytest.mark.slow)])
def test_supervisors_are_killed_at_any_moment(box: Path, place: Place, times: int) -> None:
    """From before it has made its files until the machine has long been up, with a command in it or without."""
    chance = random.Random(times)
    for number in range(times):
        name = f"m{number}"
        start = place.start("run", "-d", "--name", name, box, "sh", "-c", UP)
        supervisor = _supervisor(place, start)
        pause_s = chance.choice((0.0, 0.01, 0.1, 0.5, 1.0, 2.0)) * chance.random()
        beside = None
        if number % 3 == 2:
            start.wait(PATIENCE_S)
            beside = place.start("exec", name, "sh", "-c", "while :; do echo y; done")
        time.sleep(pause_s)
        os.kill(supervisor, signal.SIGKILL)
        start.communicate(timeout=PATIENCE_S)
        if beside is not None:
            beside.communicate(timeout=PATIENCE_S)
        _assert_told(place, name)
    place.assert_clear()


def test_exec_answers_at_once(box: Path, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command is started, and its end told, in 50 ms of the machine's time: `make bench-exec` prints the figures."""
    for name in ("XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, place.env[name])
    place.call("run", "-d", "--name", "asked", box, "sh", "-c", UP)
    found = bench_exec.timed(MachineFolders().find("asked"), ("true",), 20)
    print(found.text)
    assert found.cpu_ms <= 50.0, found
    place.call("rm", "-f", "asked")
    place.assert_clear()


def _supervisor(place: Place, start: subprocess.Popen[str]) -> int:
    """Wait for the process that holds the machine's lock, and return its number."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        for pid, line in place.running().items():
            # Its starter becomes the supervisor, which then goes into the background.
            if line.startswith(_supervise()) and pid != start.pid:
                return pid
        for listed in Path(f"/proc/{start.pid}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                for word in listed.read_text().split():
                    if Path(f"/proc/{word}/cmdline").read_text().startswith(_supervise()):
                        return int(word)
        assert start.poll() in (None, 0), start.communicate()
        time.sleep(0.002)
    raise AssertionError("no supervisor")


def _supervise() -> str:
    return str(run_orders.program())


def _assert_told(place: Place, name: str) -> None:
    """The machine has ended, which all verbs know; it can be removed, and then nothing is left."""
    end = time.monotonic() + PATIENCE_S
    while place.running() and time.monotonic() < end:
        time.sleep(0.01)
    _reap()
    left = place.running()
    assert left == {}, left
    assert name not in place.call("ps", "--format", "{{.Names}}").split()
    (found,) = json.loads(place.call("inspect", name))
    assert found["State"]["Running"] is False and found["State"]["Status"] in ("exited", "created"), found["State"]
    if found["State"]["Status"] == "exited":
        assert found["State"]["ExitCode"] == 137
        assert place.call("wait", name) == "137\n"
    alive = place.machines / found["Id"] / "alive"
    if found["State"]["Status"] == "exited" or alive.exists():  # killed before that, it has not made the file
        with alive.open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    place.call("rm", name)
    assert not (place.machines / found["Id"]).exists() and not (place.path / "runtime/vmtailor" / found["Id"]).exists()
