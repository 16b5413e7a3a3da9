# SPDX-License-Identifier: Apache-2.0
"""Machines with a name, with a real guest: terminals that are left and joined again, logs over restarts, health, and
how a machine ends.

The kernel is the one that was fitted to `lighttpd`, with a shell (tests/guests/shell)."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import socket
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.fakes.program import argv_of
from tests.system.conftest import Fitted, with_image

from vmtailor.base.files import records
from vmtailor.model.machine_watch import MachineWatch, WatchedKind

pytestmark = pytest.mark.system

SHELL = Path(__file__).parents[1] / "guests" / "shell"
PATIENCE_S = 60.0
Ended = subprocess.CompletedProcess[str]
Call = Callable[..., Ended]


@pytest.fixture(scope="module")
def shell(lighttpd: Fitted, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_image(lighttpd.bundle, SHELL, tmp_path_factory.mktemp("shell"))


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Call]:
    """Calls the program; machines that are left are removed."""
    for name in ("state", "runtime"):
        (tmp_path / name).mkdir(mode=0o700)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))

    def called(*words: str | Path) -> Ended:
        return subprocess.run(
            argv_of(*words), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )

    yield called
    names = called("ps", "-aq").stdout.split()
    if names:
        called("rm", "-f", *names)


def complaints(ended: Ended) -> str:
    """What was said on standard error, but for one line: this kernel has no file system for what machines write."""
    return "".join(line for line in ended.stderr.splitlines(True) if "keeps what it writes in memory" not in line)


def said(ended: Ended, code: int = 0) -> str:
    assert (ended.returncode, complaints(ended)) == (code, ""), (ended.stdout, ended.stderr)
    return ended.stdout


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end
        time.sleep(0.1)


class Screen:
    """The program at a terminal of ours."""

    def __init__(self, *words: str | Path) -> None:
        self._ours, theirs = pty.openpty()
        self.resize(31, 77)
        self._process = subprocess.Popen(
            argv_of(*words), stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
        self._before = termios.tcgetattr(theirs)
        self._theirs = theirs

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def tell_resized(self) -> None:
        self._process.send_signal(28)

    def type(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def ask(self, keys: bytes, pattern: bytes) -> bytes:
        """Type keys, and return what is seen then that fits."""
        self.type(keys)
        return self.see(pattern)[0]

    def see(self, pattern: bytes) -> re.Match[bytes]:
        """Wait until this is seen; what was seen up to then is gone."""
        seen, end = b"", time.monotonic() + PATIENCE_S
        while not (found := re.search(pattern, seen)):
            assert time.monotonic() < end, seen
            if select.select([self._ours], [], [], 0.1)[0]:
                seen += os.read(self._ours, 65536)
        return found

    def ended(self) -> int:
        """Wait for the end; the terminal is as it was before. Returns the exit status."""
        code = self._process.wait(PATIENCE_S)
        assert termios.tcgetattr(self._theirs) == self._before
        os.close(self._theirs)
        os.close(self._ours)
        return code


PROMPT = rb"# \x1b\[6n"


def test_a_terminal_is_left_and_joined_again(shell: Path, call: Call) -> None:
    """One machine: a shell with job control, as a user sees it; then `start` with the same terminal."""
    first = Screen("run", "-it", "--name", "box", shell, "exec busybox sh")
    first.see(PROMPT)
    first.type(b"stty size; a=kept\n")
    first.see(rb"31 77\r\n")
    first.resize(40, 100)
    first.tell_resized()
    until(lambda: first.ask(b"stty size\n", rb"\d+ \d+\r\n") == b"40 100\r\n")
    first.type(b"sleep 1000\n")
    first.see(rb"sleep 1000\r\n")
    time.sleep(0.5)
    first.type(b"\x03")
    first.see(PROMPT)
    first.type(b"echo $?\n")
    first.see(rb"\r\n130\r\n")
    first.type(b"stty raw -echo; dd bs=1 count=7 2>/dev/null | busybox od -An -tx1; stty sane\n")
    first.see(rb"sane\r\n")
    time.sleep(0.5)
    first.type(b"\x1b[A\x03\x00\x7f\xff")
    first.see(rb" 1b 5b 41 03 00 7f ff")
    first.type(b"\x10\x11")
    assert first.ended() == 0

    second = Screen("attach", "--detach-keys", "ctrl-x,y", "box")
    second.ask(b"\n", PROMPT)
    second.type(b"echo $a\x18\n")  # a key that only begins like them goes on
    second.see(rb"kept\r\n")
    other = Screen("exec", "-it", "box", "busybox", "sh")
    other.see(PROMPT)
    other.type(b"busybox ps | grep -c 'busybox sh'\x04\n")
    other.see(rb"\r\n[2-9]\r\n")
    other.type(b"exit 6\n")
    assert other.ended() == 6
    second.type(b"\x18y")
    assert second.ended() == 0
    third = Screen("attach", "box")
    third.ask(b"\n", PROMPT)
    third.type(b"exit 7\n")
    assert third.ended() == 7 and said(call("wait", "box")) == "7\n"

    fourth = Screen("start", "-ai", "--detach-keys", "ctrl-a", "box")
    fourth.see(PROMPT)
    fourth.type(b"echo $a.; stty size\n")
    fourth.see(rb"\r\n\.\r\n31 77\r\n")
    fourth.type(b"\x01")
    assert fourth.ended() == 0
    assert said(call("inspect", "-f", "{{.State.Status}} {{.Config.Tty}}", "box")) == "running true\n"


def test_logs_health_and_signals_over_restarts(shell: Path, call: Call, tmp_path: Path) -> None:
    # A health check is a shell's command, and this image has none by that name.
    script = (
        "rm -f /tmp/good; busybox ln -sf busybox /bin/sh; echo started $0; trap 'echo reload' HUP; trap 'exit 5' TERM\n"
        "while :; do sleep 0.1; done"
    )
    words = (
        "run", "-d", "--name", "svc", "--restart", "on-failure:1", "--health-cmd", "test -e /tmp/good",
        "--health-interval", "300ms", "--health-retries", "1", "-p", "0:80", "--label", "part=a", shell, script,
    )  # fmt: skip
    identifier = said(call(*words)).strip()
    health = "{{.State.Health.Status}}"
    with (tmp_path / "followed").open("wb") as out:
        following = subprocess.Popen(argv_of("logs", "-f", "svc"), stdout=out)
    until(lambda: call("inspect", "-f", health, "svc").stdout == "unhealthy\n")
    said(call("exec", "svc", "busybox", "touch", "/tmp/good"))
    until(lambda: call("inspect", "-f", health, "svc").stdout == "healthy\n")
    assert said(call("ps", "-q", "--filter", "health=healthy", "--filter", "label=part=a")) == f"{identifier[:12]}\n"
    said(call("kill", "-s", "HUP", "svc"))
    until(lambda: "reload" in (tmp_path / "followed").read_text())
    said(call("kill", "-s", "TERM", "svc"))  # it ends with 5, and is started again, in a new root
    until(lambda: call("inspect", "-f", f"{{{{.RestartCount}}}} {health}", "svc").stdout == "1 unhealthy\n")
    row = json.loads(said(call("ps", "--format", "json")))
    assert row["State"] == "running" and row["Ports"].endswith("->80/tcp") and "(unhealthy)" in row["Status"]
    used = json.loads(said(call("stats", "--no-stream", "--format", "json")))
    assert used["Name"] == "svc" and int(used["PIDs"]) >= 1
    said(call("rename", "svc", "other"))
    said(call("kill", "-s", "TERM", "other"))
    assert said(call("wait", "other")) == "5\n"
    assert following.wait(PATIENCE_S) == 0
    assert (tmp_path / "followed").read_text() == "started sh\nreload\nstarted sh\n"
    assert said(call("logs", "-n", "1", "other")) == "started sh\n"
    assert said(call("ps", "-a", "--format", "{{.Names}} {{.Status}}")).startswith("other Exited (5) ")


def test_streams_that_are_attached_and_how_machines_end(shell: Path, call: Call) -> None:
    ended = call("run", "-a", "stderr", shell, "echo out; echo err >&2; exit 3")
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "", "err\n")
    missing = call("run", "--sig-proxy=false", "--rm", "--entrypoint", "nosuch", shell)
    words = "vmtailor: the container could not be started: execve(nosuch): No such file or directory\n"
    assert (missing.returncode, missing.stdout, complaints(missing)) == (127, "", words)
    said(call("run", "-d", "--name", "deaf", shell, "trap '' TERM; echo up; while :; do sleep 0.1; done"))
    until(lambda: call("logs", "deaf").stdout == "up\n")
    began = time.monotonic()
    assert said(call("stop", "-t", "1", "deaf")) == "deaf\n"
    assert 1.0 <= time.monotonic() - began < PATIENCE_S
    assert said(call("wait", "deaf", "deaf")) == "137\n137\n"


def test_a_machine_that_runs_is_watched(shell: Path, call: Call, tmp_path: Path) -> None:
    said(call("run", "-d", "--name", "busy", shell, "while :; do :; done"))
    out = tmp_path / "out"
    ended = call("watch", "busy", "--every", "200ms", "--for", "2s", "-o", out, "--openmetrics", out / "text")
    assert ended.returncode == 0, ended.stderr
    found = records.load(MachineWatch, out / "watch.json")
    assert len(found.times_ns) >= 5 and found.subject == "busy"
    for kind, figure in ((WatchedKind.HOST, "cpu_us"), (WatchedKind.HOST, "resident_bytes")):
        series = found.find(kind, figure)
        assert series is not None and series.values[-1]
    free = found.find(WatchedKind.MACHINE, "memory_free_bytes")
    assert free is not None and free.values[-1] and (out / "text").read_text().endswith("# EOF\n")
    assert call("watch", "busy", "--memory", "64M").returncode == 2
    assert call("watch", "nosuch").returncode != 0 and not call("watch", "nosuch").stdout


def test_a_port_of_ipv6(shell: Path, call: Call) -> None:
    """Beside one of IPv4, and after a restart: the program beside the machine stays as long as that."""
    script = "while :; do echo answer | busybox nc -l -p 80; done"
    said(call("run", "-d", "--name", "six", "-p", "[::1]::80", "-p", "0:81", shell, script))
    first, second = json.loads(said(call("inspect", "-f", "{{json .NetworkSettings.Ports}}", "six"))).values()
    assert (first[0]["HostIp"], second[0]["HostIp"]) == ("::1", "127.0.0.1")
    port = int(first[0]["HostPort"])
    assert f"[::1]:{port}->80/tcp" in said(call("ps"))

    def answers() -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("::1", port), PATIENCE_S) as line:
            line.settimeout(PATIENCE_S)
            return line.recv(100) == b"answer\n"
        return False

    until(answers)
    said(call("restart", "-t", "0", "six"))
    until(answers)
    taken = call("run", "-p", f"[::1]:{port}:80", shell)
    assert (taken.returncode, f"[::1]:{port}/tcp is already in use" in taken.stderr) == (125, True)
