# SPDX-License-Identifier: Apache-2.0
"""What QEMU may do on the host, as root and as an ordinary user, with namespaces and without; and that it ends with its
starter. Real QEMU, and a kernel of a hundred bytes (tests/guests/kernel.S)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.small_kernel import small_kernel

import vmtailor
from vmtailor.analysis.guests.machine_variants import USUAL
from vmtailor.base import natives
from vmtailor.base.errors import UserInputError
from vmtailor.base.process import run, spawn
from vmtailor.booting.listener import listening
from vmtailor.drivers.confinement import confinement
from vmtailor.drivers.confinement.confinement import Root
from vmtailor.drivers.qemu import qemu
from vmtailor.drivers.qemu.handover import Wanted
from vmtailor.drivers.rootfs.boot_disk import disk_of
from vmtailor.model.machine import Clock, Machine

pytestmark = [pytest.mark.system, pytest.mark.attack]

HERE = Path(__file__).parents[1]
NOBODY = 65534
#: Seconds within which QEMU is gone after its starter was killed.
GONE_S = 10.0


@dataclass(frozen=True)
class Kind:
    """A user on a host: how its process is started, and what is expected of QEMU there."""

    name: str
    start: tuple[str, ...]
    root: Root
    stranger: bool


KINDS = (
    Kind("root", (), Root.MOUNT, True),
    Kind("nobody", (), Root.USER, False),
    Kind("root-without-namespaces", ("setpriv", "--bounding-set=-sys_admin"), Root.SHARED, True),
    Kind("nobody-without-namespaces", ("unshare", "--mount"), Root.SHARED, False),
)


@dataclass
class Booted:
    """A starter, its QEMU, the port that it publishes, and the folder for its temporary files."""

    starter: subprocess.Popen[bytes]
    pid: int
    said: dict[str, Any]
    port: int
    temporary: Path

    @property
    def status(self) -> dict[str, str]:
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}

    @property
    def root(self) -> Path:
        return Path(f"/proc/{self.pid}/root")

    def gone(self) -> bool:
        """Whether QEMU, all its threads included, has ended."""
        return ended(self.pid)


def ended(pid: int) -> bool:
    """Whether a process has ended, whether or not somebody has looked at it since."""
    try:
        states = [path.read_text().rpartition(")")[2].split()[0] for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    except (FileNotFoundError, ProcessLookupError):
        return False  # it changes just now: look again
    return all(state in "ZX" for state in states)


def within(seconds: float, true: Callable[[], bool]) -> bool:
    """Whether something becomes true in time."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def port_is_free(port: int) -> bool:
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind(("127.0.0.1", port))
            one.listen()
        except OSError:
            return False
        return True


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """The package, a kernel and a disk, where every user can read them; the checkout may lie in a closed home."""
    if os.geteuid() != 0:
        pytest.skip("root becomes the other users here")
    natives.locate()
    folder = Path("/tmp") / f"test-confined-{os.getpid()}"
    folder.mkdir(mode=0o755)
    try:
        source = folder / "src"
        shutil.copytree(
            Path(vmtailor.__file__).parent, source / "vmtailor", ignore=shutil.ignore_patterns("__pycache__")
        )
        small_kernel(folder)
        (folder / "disk").write_bytes(bytes(1 << 20))
        (folder / "tmp").mkdir()
        (folder / "tmp").chmod(0o777)
        yield folder
    finally:
        shutil.rmtree(folder)


@pytest.fixture(params=KINDS, ids=lambda kind: str(kind.name))
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


@pytest.fixture
def booted(place: Path, kind: Kind) -> Iterator[Booted]:
    own = kind.name.startswith("root")
    # Root's files are closed to the user that QEMU becomes; those of an ordinary user are his.
    for name in ("kernel", "disk"):
        os.chown(place / name, 0 if own else NOBODY, 0 if own else NOBODY)
        (place / name).chmod(0o600)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    packages = Path(pytest.__file__).parents[1]
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{place / 'src'}:{packages}",
        "TMPDIR": str(place / "tmp"),
        "HOME": str(place / "tmp"),
    }
    argv = [*kind.start, sys.executable, str(HERE / "fakes" / "confined.py"), kind.name]
    argv += [str(place / "kernel"), str(place / "disk"), str(port)]
    starter = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
    assert starter.stdout is not None and starter.stdin is not None
    try:
        line = starter.stdout.readline()
        assert line, "it did not boot"
        said = json.loads(line)
        yield Booted(starter, said["pid"], said, port, place / "tmp")
    finally:
        starter.kill()
        starter.wait()
        starter.stdin.close()
        starter.stdout.close()


def test_qemu_has_as_little_as_the_host_allows(booted: Booted, kind: Kind, place: Path) -> None:
    status = booted.status
    users = {int(word) for word in (status["Uid"] + " " + status["Gid"]).split()}
    assert (booted.said["root"], booted.said["stranger"]) == (kind.root, kind.stranger)
    if kind.stranger:
        assert len(users) == 1 and min(users) > NOBODY and not status["Groups"]
    else:
        assert users == {NOBODY}
    assert status["NoNewPrivs"] == "1"
    assert {int(status[name], 16) for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")} == {0}
    assert status["Seccomp"] == "2"
    assert bool(booted.said["lacking"]) == (kind.root is Root.SHARED)
    if kind.root is Root.SHARED:
        return
    assert int(status["CapBnd"], 16) == 0
    assert {path.name for path in booted.root.iterdir()} <= {"dev", "etc", "lib", "lib64", "machine", "usr"}
    assert not (booted.root / "etc" / "passwd").exists()
    assert not (booted.root / str(place).lstrip("/")).exists()
    assert not (booted.root / "proc").exists()
    assert {path.name for path in (booted.root / "machine").iterdir()} == {"kernel", "preloaded.so"}
    assert {path.name for path in (booted.root / "dev").iterdir()} == {"null", "urandom"}
    mounts = Path(f"/proc/{booted.pid}/mounts").read_text().splitlines()
    assert all("ro" in line.split()[3].split(",") for line in mounts if " /dev/" not in line)


def test_qemu_ends_when_its_starter_is_killed(booted: Booted) -> None:
    assert not port_is_free(booted.port)
    booted.starter.send_signal(signal.SIGKILL)
    assert within(GONE_S, booted.gone)
    assert within(GONE_S, lambda: port_is_free(booted.port))
    assert list(booted.temporary.iterdir()) == []


def test_qemu_ends_when_its_starter_loses_its_terminal(booted: Booted) -> None:
    booted.starter.send_signal(signal.SIGHUP)
    assert within(GONE_S, booted.gone)


def test_what_qemu_started_could_not_outlive_it_either() -> None:
    """The launcher dies with the thread that started it, and looks whether that has already happened."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    with spawn([str(confinement.launcher()), "parent", str(gone.pid), "--", "/bin/sleep", "60"]) as process:
        assert process.wait(20) == -signal.SIGKILL


def test_a_program_s_children_end_when_the_starter_is_killed() -> None:
    code = (
        "from vmtailor.base.process import run;"
        "run(['sh', '-c', 'sleep 60 & echo $!; wait'], timeout_s=60, on_line=lambda line: print(line, flush=True))"
    )
    starter = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert starter.stdout is not None
    try:
        pid = int(starter.stdout.readline())
        starter.kill()
        assert within(GONE_S, lambda: ended(pid))
    finally:
        starter.kill()
        starter.wait()
        starter.stdout.close()


@pytest.fixture
def kernel(place: Path) -> Path:
    return place / "kernel"


def machine(kernel: Path, disk: Path, word: str) -> Machine:
    return replace(
        USUAL,
        board="microvm",
        memory_bytes=32 << 20,
        kernel=str(kernel),
        words=(word,),
        disks=(disk_of(disk),),
        clock=Clock.WALL,
    )


def qcow2_image(backing: bytes = b"") -> bytes:
    """An empty image of a mebibyte, in clusters of 64 KiB: header, table of counts, reference counts, level-1 table."""
    cluster = 1 << 16
    at = 112 if backing else 0
    head = struct.pack(
        ">4sIQIIQIIQQIIQ", b"QFI\xfb", 3, at, len(backing), 16, 1 << 20, 0, 1, 3 * cluster, cluster, 1, 0, 0
    )
    head += struct.pack(">QQQII", 0, 0, 0, 4, 104) + struct.pack(">II", 0, 0) + backing
    counts = struct.pack(">4H", 1, 1, 1, 1)
    parts = (head, struct.pack(">Q", 2 * cluster), counts, b"")
    return b"".join(part.ljust(cluster, b"\0") for part in parts)


@pytest.mark.parametrize("form", ["raw", "qcow2"])
def test_a_disk_that_is_booted_is_written_beside_it_and_nothing_stays(
    kernel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    disk, temporary = tmp_path / "disk", tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    disk.write_bytes(bytes(1 << 20) if form == "raw" else qcow2_image())
    before = disk.read_bytes()
    with listening(machine(kernel, disk, "h")) as running:
        assert list(temporary.iterdir()) == []  # already while it runs
        assert isinstance(running.machine, qemu.QemuMachine) and running.machine.qmp is not None
        running.machine.qmp.ask_person('qemu-io disk0 "write -P 7 0 4096"')
        # QEMU says that on its standard output, which is the serial line.
        assert within(10, lambda: "wrote 4096/4096" in running.pump(0.1) or b"wrote 4096/4096" in running.console.raw)
    assert disk.read_bytes() == before
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("secret", ["/etc/shadow", "base.raw"])
def test_a_disk_image_names_no_other_file_of_the_host(kernel: Path, tmp_path: Path, secret: str) -> None:
    (tmp_path / "base.raw").write_bytes(bytes(1 << 20))
    disk = tmp_path / "disk.qcow2"
    disk.write_bytes(qcow2_image(secret.encode()))
    with pytest.raises(UserInputError, match="depends on another file"), listening(machine(kernel, disk, "h")):
        pass


def test_a_port_below_1024_can_still_be_published_by_root(place: Path) -> None:
    """QEMU keeps that one capability, and only where it is needed."""
    with socket.socket() as free:
        port = next((n for n in range(700, 1000) if free.connect_ex(("127.0.0.1", n))), 0)

    def build(ends: Any = None, *, program: str, sandbox: bool) -> list[str]:
        del sandbox
        words = [program, "-M", "none", "-display", "none", "-nodefaults", "-netdev"]
        words += [f"user,id=n,hostfwd=tcp:127.0.0.1:{port}-:80"]
        return words + (["-chardev", f"socket,id=q,fd={ends.qmp}", "-mon", "chardev=q,mode=control"] if ends else [])

    with qemu.launch(build, Wanted(low_ports=True), qmp=True) as running:
        status = Path(f"/proc/{running._process.pid}/status").read_text()
        assert "CapEff:\t0000000000000400" in status and "CapBnd:\t0000000000000400" in status
        socket.create_connection(("127.0.0.1", port), 5).close()


def test_firmware_that_qemu_names_itself_is_in_its_root() -> None:
    """`-L help` says where QEMU looks; what is there must be among what it is shown."""
    from vmtailor.drivers.qemu import qemu_program

    found = qemu_program.installed()
    assert found.needs is not None
    for line in run([found.program, "-L", "help"], timeout_s=20).text.split():
        folder = Path(line).resolve()
        if folder.is_dir():
            assert any(folder.is_relative_to(shown) for shown in found.needs), folder
