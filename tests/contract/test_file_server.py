# SPDX-License-Identifier: Apache-2.0
"""The program that starts file servers for a machine (native/serve): what a server sees and may do, also one that has
been taken over; and how machine, server and watcher end with each other.

A shell stands in the server's place where the test asks what a taken-over server reaches."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from vmtailor.base.natives import locate
from vmtailor.drivers.confinement import confinement
from vmtailor.drivers.confinement.confinement import Root
from vmtailor.drivers.shares import file_servers
from vmtailor.model.guest_mounts import Share

pytestmark = [pytest.mark.contract, pytest.mark.attack]

#: What a shell and its tools need of the host.
_NEEDS = ("/bin", "/lib", "/lib64", "/usr")
_S = 30.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that is shared, beside a secret that is not."""
    (tmp_path / "secret").write_text("secret\n")
    made = tmp_path / "shared"
    made.mkdir()
    (made / "inside").write_text("inside\n")
    (made / "out").symlink_to(tmp_path / "secret")
    return made


def words(*rest: str) -> list[str]:
    """The command up to its shares."""
    root = "mount" if confinement.available().root is Root.MOUNT else "user"
    shown = [word for path in _NEEDS if Path(path).exists() for word in ("show", path)]
    return [str(locate().serve), "root", root, *shown, "device", "/dev/null", *rest]


def taken_over(folder: Path, script: str, kind: str = "folder") -> subprocess.CompletedProcess[str]:
    """What a shell in a server's place says. It ends, and so the machine (a sleep) is ended."""
    argv = words("arg", "/bin/sh", "arg", "-c", "arg", script, kind, "9", str(folder), "--", "/bin/sleep", "60")
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


def test_a_server_that_was_taken_over_reaches_its_folder_alone(folder: Path, tmp_path: Path) -> None:
    script = (
        "exec >&2; cat /shared/inside; cat /shared/out; cat /shared/../secret; "
        f"cat {tmp_path}/secret; ls /; ls /proc; echo made > /shared/new; echo x > /usr/x; mknod /x c 1 3; exit 7"
    )
    said = taken_over(folder, script).stderr
    assert "inside\n" in said and "secret\n" not in said.replace(f"{tmp_path}/secret", "")
    assert (folder / "new").read_text() == "made\n"
    # Of the processes of the host there is one, the server itself.
    assert re.search(r"^self$", said, re.MULTILINE) and not re.search(r"^1$", said, re.MULTILINE)
    assert "Read-only file system" in said
    assert f"serve: the file server of {folder} ended (status 7), and the machine with it" in said


def test_what_is_shared_to_be_read_is_not_written_by_the_server_either(folder: Path) -> None:
    script = "exec >&2; echo x > /shared/new; echo x >> /shared/inside; echo y > /shared/new; exit 7"
    assert "Read-only file system" in taken_over(folder, script, "folder-ro").stderr
    assert sorted(one.name for one in folder.iterdir()) == ["inside", "out"]
    assert (folder / "inside").read_text() == "inside\n"


def test_beside_a_file_alone_there_is_nothing(folder: Path) -> None:
    script = (
        "exec >&2; ls -A /shared; cat /shared/file; cat /shared/inside; echo x > /shared/other; "
        "echo y >> /shared/file; exit 7"
    )
    said = taken_over(folder / "inside", script, "file").stderr
    assert said.startswith("file\ninside\n") and "Read-only file system" in said
    assert (folder / "inside").read_text() == "inside\ny\n"
    assert not (folder / "other").exists()


def test_a_server_has_no_network_and_no_rights_over_the_host(folder: Path) -> None:
    script = "exec >&2; cat /proc/self/net/dev | grep -c :; kill -9 1; grep NoNewPrivs /proc/self/status; exit 7"
    said = taken_over(folder, script).stderr
    assert said.startswith("1\n") and "NoNewPrivs:\t1" in said  # the loopback device, which is down


def test_a_folder_that_became_a_link_is_not_followed(folder: Path, tmp_path: Path) -> None:
    for path in (tmp_path / "swapped", tmp_path / "above" / "shared"):
        target = folder if path.name == "swapped" else folder.parent
        (path if path.name == "swapped" else path.parent).symlink_to(target)
        ended = taken_over(path, "echo reached >&2; exit 7")
        assert ended.returncode == 71 and "reached" not in ended.stderr
        assert re.match(f"launch: (open|share) {re.escape(str(path))}: ", ended.stderr)


def test_a_file_is_no_folder_and_a_device_neither(folder: Path) -> None:
    assert taken_over(folder / "inside", "exit 7").returncode == 71
    assert taken_over(folder, "exit 7", "file").returncode == 71
    assert taken_over(Path("/dev/null"), "exit 7", "file").returncode == 71


def test_a_folder_that_is_swapped_while_it_is_served_stays_the_one_it_was(folder: Path, tmp_path: Path) -> None:
    script = "exec >&2; while [ ! -e /shared/go ]; do sleep 0.05; done; cat /shared/inside; cat /shared/secret; exit 7"
    argv = words("arg", "/bin/sh", "arg", "-c", "arg", script, "folder", "9", str(folder), "--", "/bin/sleep", "60")
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as machine:
        time.sleep(0.5)
        folder.rename(tmp_path / "moved")
        folder.symlink_to(tmp_path)
        (tmp_path / "moved" / "go").touch()
        _, said = machine.communicate(timeout=60)
    assert said.startswith("inside\n") and "secret\n" not in said


# --- the ends


def alive(marker: str) -> list[int]:
    """The processes that have a word on their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes()
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if marker.encode() in line and state != "Z":
                found.append(int(entry.name))
    return found


def until(what: object, marker: str, count: int) -> list[int]:
    deadline = time.monotonic() + _S
    while len(found := alive(marker)) != count:
        assert time.monotonic() < deadline, f"{what}: {found}"
        time.sleep(0.05)
    return found


@pytest.fixture
def machine(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A machine (a program that sleeps) with the real server of one folder."""
    command = [*file_servers.words([Share("vtfs0", str(folder))], [9]), "/bin/sleep", "61"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as started:
        deadline = time.monotonic() + _S
        while not Path(f"/proc/{started.pid}/exe").samefile("/bin/sleep"):  # until then it may fail to start
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield started, str(folder)
        started.kill()


def test_when_the_server_dies_the_machine_ends_with_a_sentence(machine: tuple[subprocess.Popen[str], str]) -> None:
    started, folder = machine
    (watcher,) = until("the watcher", folder, 1)
    servers = [int(one) for one in Path(f"/proc/{watcher}/task/{watcher}/children").read_text().split()]
    os.kill(servers[0], signal.SIGKILL)
    _, said = started.communicate(timeout=60)
    assert started.returncode == -signal.SIGKILL
    assert f"serve: the file server of {folder} ended (signal 9), and the machine with it" in said


def test_when_the_machine_dies_watcher_and_server_do(machine: tuple[subprocess.Popen[str], str]) -> None:
    started, folder = machine
    (watcher,) = until("the watcher", folder, 1)
    children = Path(f"/proc/{watcher}/task/{watcher}/children")
    deadline = time.monotonic() + _S
    while not (servers := children.read_text().split()):
        assert time.monotonic() < deadline
    started.kill()
    until("the watcher is gone", folder, 0)
    while any(Path(f"/proc/{one}/exe").exists() and os.path.lexists(f"/proc/{one}/root/shared") for one in servers):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a machine another user")
def test_a_machine_of_another_user_takes_a_server_with_it_that_does_not_end(folder: Path) -> None:
    """Its end sends the watcher, which is root's, no signal."""
    program = (str(locate().launch), "stranger", "--", "/bin/sleep", "63")
    argv = words("arg", "/bin/sleep", "arg", "63", "folder", "9", str(folder), "--", *program)
    with subprocess.Popen(argv, start_new_session=True) as machine:
        (watcher,) = until("the watcher", str(folder), 1)  # the machine's command no longer names the folder
        (server,) = Path(f"/proc/{watcher}/task/{watcher}/children").read_text().split()
        machine.kill()
    until("the watcher is gone", str(folder), 0)
    assert not Path(f"/proc/{server}/exe").exists()


def test_a_starter_that_was_killed_takes_all_with_it(folder: Path) -> None:
    command = [*file_servers.words([Share("vtfs0", str(folder))], [9]), "/bin/sleep", "62"]
    at = command.index("parent")
    script = f"import os,subprocess,sys; c={command!r}; c[{at + 1}]=str(os.getpid()); subprocess.run(c)"
    with subprocess.Popen(["python3", "-c", script], start_new_session=True) as starter:
        until("starter and watcher", str(folder), 2)
        starter.kill()
    until("all gone", str(folder), 0)
