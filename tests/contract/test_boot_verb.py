# SPDX-License-Identifier: Apache-2.0
"""`boot` with real QEMU and a kernel of a hundred bytes (tests/guests/kernel.S): its ends, its ports, Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from vmtailor.analysis.guests.machine_variants import USUAL, on_loopback
from vmtailor.booting.booter import boot
from vmtailor.booting.listener import listening
from vmtailor.drivers.guest.ready import parse_signal
from vmtailor.model.architecture import presumed
from vmtailor.model.boots.boot import Outcome
from vmtailor.model.boots.workload import OwnInit
from vmtailor.model.machine import Clock, Disk, DiskMode

KINDS = presumed().board_names

pytestmark = pytest.mark.contract


def verb(*words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "vmtailor", "boot", *words], check=False, capture_output=True, timeout=120
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("clock", Clock)
def test_a_machine_with_everything_gets_ready(kernel: Path, tmp_path: Path, kind: str, clock: Clock) -> None:
    disk = tmp_path / "disk"
    disk.write_bytes(bytes(1 << 20))
    vm = replace(
        USUAL,
        board=kind,
        memory_bytes=64 << 20,
        kernel=str(kernel),
        words=("hang",),
        disks=(Disk(str(disk), mode=DiskMode.OVERLAID),),
        ports=on_loopback([22]),
        clock=clock,
    )
    found, _ = boot(vm, OwnInit(parse_signal("log:hanging"), 60.0), tmp_path)
    assert found.outcome is Outcome.READY, found.problem
    assert disk.read_bytes() == bytes(1 << 20)


def test_ports_are_told_and_open_only_on_the_loopback_address(kernel: Path) -> None:
    vm = replace(USUAL, memory_bytes=64 << 20, kernel=str(kernel), words=("hang",), ports=on_loopback([22, 80]))
    with listening(vm) as running:
        assert set(running.forwards) == {22, 80}
        assert len(set(running.forwards.values())) == 2
        table = Path("/proc/net/tcp").read_text()
        for port in running.forwards.values():
            assert f"0100007F:{port:04X} 00000000:0000 0A" in table
            assert f"00000000:{port:04X} 00000000:0000 0A" not in table
    assert running.ended


def test_qemu_tells_how_many_instructions_it_has_counted(kernel: Path) -> None:
    vm = replace(USUAL, memory_bytes=64 << 20, kernel=str(kernel), words=("hang",), clock=Clock.INSTRUCTIONS)
    with listening(vm) as running:
        until = time.monotonic() + 20.0
        while not (seen := running.machine.executed()) and time.monotonic() < until:
            time.sleep(0.1)
        assert seen
        time.sleep(0.5)
        assert (running.machine.executed() or 0) >= seen
        running.quit(3.0)
        assert running.machine.executed() is None  # it is gone


def test_an_open_port_of_a_guest_that_does_not_listen_is_not_ready(kernel: Path, tmp_path: Path) -> None:
    vm = replace(
        USUAL,
        memory_bytes=64 << 20,
        kernel=str(kernel),
        words=("hang",),
        ports=on_loopback([22]),
    )
    for name in ("tcp:22", "ssh"):
        found, _ = boot(vm, OwnInit(parse_signal(name), 2.0), tmp_path)
        assert found.outcome is Outcome.TIMEOUT


def test_a_disk_that_nothing_starts_from_says_so(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.write_bytes(bytes(1 << 20))
    machine = replace(USUAL, disks=(Disk(str(disk), mode=DiskMode.OVERLAID),), network=False)
    found, _ = boot(machine, OwnInit(parse_signal("login"), 60.0), tmp_path)
    assert found.outcome is Outcome.STOPPED
    assert found.problem == "no system to boot was found"


def test_a_loader_of_the_disks_own_is_started(tmp_path: Path) -> None:
    # mov dx, 0x3f8; then each letter to the serial port; then stay
    code = b"\xba\xf8\x03" + b"".join(b"\xb0" + bytes([c]) + b"\xee" for c in b"vm login: ") + b"\xeb\xfe"
    disk = tmp_path / "disk"
    disk.write_bytes(code.ljust(510, b"\0") + b"\x55\xaa" + bytes(1 << 20))
    done = verb(str(disk), "-n", "1", "--json", "-o", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["boots"][0]["boot"]["outcome"] == "ready"
    assert document["figures"]["base"]["ready"]["count"] == 1


def test_a_machine_that_is_asked_nothing(kernel: Path, tmp_path: Path) -> None:
    words = ("--kernel", str(kernel), "--append", "hang", "-n", "1", "--ready", "nothing:1.5", "--json")
    done = verb(*words, "-o", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["ready"]["by"] == "nothing" and document["boots"][0]["boot"]["outcome"] == "ready"
    assert 1.5 <= document["boots"][0]["boot"]["seconds"] < 20


def test_the_verb_says_what_failed_and_exits_with_five(kernel: Path, tmp_path: Path) -> None:
    done = verb("--kernel", str(kernel), "--append", "panic", "-n", "1", "--json", "-o", str(tmp_path / "out"))
    assert done.returncode == 5, done.stderr
    document = json.loads(done.stdout)
    assert next(iter(document)) == "schema" and document["schema"] == "vmtailor/boots/4"
    assert document["boots"][0]["boot"]["outcome"] == "panic"
    assert (tmp_path / "out" / document["boots"][0]["folder"] / "console.log").is_file()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "nothing to boot"),
        (("--kernel", "/none"), "does not exist"),
        (("--kernel", __file__, "--ready", "soon"), "ready signal"),
        (("--kernel", __file__, "--memory", "much"), "not an amount of memory"),
        (("--kernel", __file__, "--sample"), "--initrd"),
        (("--kernel", __file__, "--clock", "instructions", "--cpus", "2"), "one CPU"),
        (("--kernel", __file__, "--mark", "x"), "NAME=REGEX"),
        (("--kernel", __file__, "--ready", "nothing:0"), "between 0.1"),
        (("--kernel", __file__, "--ready", "nothing:3", "--also", "login"), "without --also"),
        (("--kernel", __file__, "--ready", "nothing:3", "--try", "audit"), "moment to be ready"),
        (("--kernel", __file__, "--try", "auditt"), "did you mean audit?"),
        (("--kernel", __file__, "--try", "u-boot-delay"), "no trial is possible"),
        (("--kernel", __file__, "--try", "config:USB=n"), "needs another kernel"),
    ],
)
def test_wrong_input_is_said(words: tuple[str, ...], says: str, tmp_path: Path) -> None:
    done = verb(*words, "-o", str(tmp_path / "out"))
    assert done.returncode == 2, done.stderr
    assert says in " ".join(done.stderr.decode().split())


def test_an_empty_file_is_no_initial_ram_disk(kernel: Path, tmp_path: Path) -> None:
    """QEMU would start the machine without one, and its kernel would find no root."""
    (tmp_path / "initrd").touch()
    done = verb("--kernel", str(kernel), "--initrd", str(tmp_path / "initrd"), "-o", str(tmp_path / "out"))
    assert done.returncode == 2 and "initrd is empty" in " ".join(done.stderr.decode().split())


def test_interrupted_it_leaves_nothing_running(kernel: Path, tmp_path: Path) -> None:
    words = ("--kernel", str(kernel), "--append", "hang", "--ready", "log:never", "-o", str(tmp_path / "out"))
    process = subprocess.Popen(
        [sys.executable, "-m", "vmtailor", "boot", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 60
    while not (children := _children(process.pid)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert children
    os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130, errors
    assert b"interrupted" in errors
    deadline = time.monotonic() + 10
    while (left := [child for child in children if _lives(child)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left


def _lives(pid: int) -> bool:
    """Whether a process has not ended; one that has may wait for an init that never reaps."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
