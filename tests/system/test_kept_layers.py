# SPDX-License-Identifier: Apache-2.0
"""Named machines in real guests: what they wrote is there again, and so are their volumes, folders and network."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes.program import argv_of

pytestmark = pytest.mark.system

#: Gives the guest's shell its tools.
_TOOLS = "/bin/busybox --install -s /bin; "
#: Counts the runs of a machine where it keeps what it writes.
COUNT = "echo x >> {0}; echo {0} $(wc -l < {0})"
WAIT_S = 60.0


class Named:
    """A machine with a name, and the verbs on it."""

    def ask(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a command; a machine that it starts goes on when it has ended."""
        return subprocess.run(argv_of(*words), capture_output=True, text=True, timeout=WAIT_S, check=False)

    def do(self, *words: str | Path) -> str:
        ended = self.ask(*words)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout.strip()

    def wait_for(self, text: str, times: int = 1) -> list[str]:
        """Wait until it has printed a line so often, and return all its lines."""
        deadline = time.monotonic() + WAIT_S
        while (lines := self.do("logs", "web").splitlines()).count(text) < times:
            assert time.monotonic() < deadline, (lines, self.do("inspect", "web"))
            time.sleep(0.2)
        return lines

    def tell(self, field: str) -> str:
        return self.do("inspect", "-f", f"{{{{json {field}}}}}", "web")


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Named]:
    """The machine `web`, which is removed at the end."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    named = Named()
    yield named
    named.ask("rm", "-f", "web")
    assert not list((tmp_path / "state/vmtailor/machines").glob("*"))


def test_a_kernel_that_keeps_nothing_is_told_once(talker: Path, web: Named) -> None:
    started = web.ask("run", "-d", "--name", "web", talker, "wait")
    assert started.returncode == 0 and "web keeps what it writes in memory, until it stops: " in started.stderr
    assert "its kernel lacks EXT4_FS, EXT4_FS_SECURITY; vmtailor refit" in started.stderr
    assert "--keep volumes" in started.stderr
    assert json.loads(web.tell(".Layer"))["Kept"] is False and web.tell(".SizeRw") == "null"
    again = web.ask("restart", "-t", "0", "web")
    assert (again.returncode, again.stderr) == (0, "") and "in memory" in web.do("ps", "-s")
    refused = web.ask("run", "-d", "--storage-opt", "size=1G", talker, "wait")
    assert refused.returncode == 125 and "what this machine writes is in memory" in refused.stderr


@pytest.mark.slow
def test_what_was_written_is_there_again(keeper: Path, web: Named) -> None:
    script = _TOOLS + "rm -f /var/kept/first; ls -A /var/kept; " + COUNT.format("/n") + "; echo up; exec sleep 600"
    web.do("run", "-d", "--name", "web", "--storage-opt", "size=64M", keeper, script)
    web.wait_for("up")
    web.do("stop", "-t", "0", "web")  # the container is killed, and what it wrote a moment before is there
    web.do("start", "web")
    assert [line for line in web.wait_for("up", 2) if line.startswith("/n")] == ["/n 1", "/n 2"]
    web.do("cp", str(Path(__file__)), "web:/copied")
    time.sleep(3)
    os.kill(int(web.tell(".State.Pid")), signal.SIGKILL)
    deadline = time.monotonic() + WAIT_S
    while web.tell(".State.Status") != '"exited"':
        assert time.monotonic() < deadline
    web.do("start", "web")
    web.wait_for("/n 3")
    web.do("restart", "-t", "0", "web")
    assert [line for line in web.wait_for("up", 4) if line.startswith("/n")][-1] == "/n 4"
    assert web.do("exec", "web", "/bin/busybox", "md5sum", "/copied").split()[0] == md5(Path(__file__))
    assert web.do("exec", "web", "/bin/busybox", "df", "-m", "/").split()[-5] in ("55", "56", "57", "58")
    layer = json.loads(web.tell(".Layer"))
    disk = Path(layer["Path"])
    assert layer["Kept"] and disk.stat().st_size == layer["Limit"] == 64 << 20
    assert 0 < int(web.tell(".SizeRw")) == disk.stat().st_blocks * 512 < 32 << 20 and disk.stat().st_mode & 0o77 == 0
    web.do("rm", "-f", "web")
    assert not disk.exists()


def md5(path: Path) -> str:
    return subprocess.run(["md5sum", path], capture_output=True, text=True, check=True).stdout.split()[0]


@pytest.mark.slow
def test_volumes_and_folders_are_there_at_each_start(keeper: Path, web: Named, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    places = "; ".join(COUNT.format(place) for place in ("/n", "/v/n", "/h/n"))
    options = ("-v", "data:/v", "-v", f"{shared}:/h", "--name", "web", "--restart", "always")
    web.do("run", "-d", *options, keeper, f"{_TOOLS}{places}; echo up; sleep 3; exit 3")
    # The supervisor starts it again with the descriptors that it has, and a file server of its own.
    lines = web.wait_for("up", 2)
    assert lines[3:] == lines[:3] or lines[4:7] == ["/n 2", "/v/n 2", "/h/n 2"]
    busy = web.ask("run", "-v", "data:/v", keeper, "true")
    assert busy.returncode == 125 and "the volume data is in use" in busy.stderr
    web.do("stop", "web")
    assert json.loads(web.do("volume", "inspect", "data"))[0]["InUse"] is False
    web.do("start", "web")
    count = len((shared / "n").read_text().splitlines()) + 1
    web.wait_for(f"/h/n {count}")
    assert {f"/n {count}", f"/v/n {count}"} <= set(web.wait_for("up", count))
    assert json.loads(web.do("volume", "inspect", "data"))[0]["InUse"] is True
    assert web.do("inspect", "-f", "{{json .Mounts}}", "web").count("Destination") == 2


#: A network of its own with a TAP device in it.
TAP = """
set -e
mount -t sysfs none /sys
ip link set lo up
ip tuntap add dev vt0 mode tap
ip address add 192.0.2.1/24 dev vt0
ip link set vt0 up
exec sleep 600
"""


@pytest.fixture
def apart() -> Iterator[list[str]]:
    """The words before a command that run it in that network."""
    words = ["unshare", "--mount", "--net"]
    if subprocess.run([*words, "test", "-w", "/dev/net/tun"], capture_output=True, check=False).returncode != 0:
        pytest.skip("TAP devices are made by root")
    with subprocess.Popen([*words, "sh", "-c", TAP]) as holder:
        try:
            within = ["nsenter", "--mount", "--net", "--target", str(holder.pid)]
            deadline = time.monotonic() + 30
            shown = [*within, "ip", "link", "show", "vt0"]
            while b"UP" not in subprocess.run(shown, capture_output=True, check=False).stdout:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            yield within
        finally:
            holder.kill()


#: Asks the guest until it answers.
ASK = """
for i in $(seq 100); do
  python3 -c "import socket
s = socket.create_connection(('192.0.2.2', 80), 2)
print(s.recv(100).decode())" 2>/dev/null && exit 0
  sleep 0.2
done
exit 1
"""


@pytest.mark.slow
def test_a_tap_device_is_there_at_each_start(keeper: Path, web: Named, apart: list[str]) -> None:
    def within(*words: str | Path) -> str:
        return subprocess.run([*apart, *words], capture_output=True, text=True, timeout=WAIT_S, check=True).stdout

    # It ends when it was asked, so the second answer is that of a machine that was started again.
    script = _TOOLS + "echo up; nc -l -p 80 -e date; exit 1"
    within(*argv_of("run", "-d", "--name", "web", "--restart", "always", "--network", "tap:vt0", keeper, script))
    for start in (1, 2):
        web.wait_for("up", start)
        assert "20" in within("sh", "-c", ASK)
    web.wait_for("up", 3)
    web.do("stop", "-t", "0", "web")
    within(*argv_of("start", "web"))
    web.wait_for("up", 4)
    assert "20" in within("sh", "-c", ASK)
