# SPDX-License-Identifier: Apache-2.0
"""Init on the packaged kernel: what a container finds, what the host hears. A boot takes 20 s, so each shows much."""

from __future__ import annotations

import io
import re
import struct
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.fakes.talking_session import TalkingSession

from vmtailor.analysis.guests.varying_output import Output
from vmtailor.base.cache.store import Store
from vmtailor.base.natives import locate
from vmtailor.base.process import require_tool
from vmtailor.drivers.distribution import packaged_baseline, selection
from vmtailor.drivers.guest.guest_volume import TRACER_OPTIONS, config_bytes, root_entries, write_run_volume
from vmtailor.drivers.guest.wire import encode
from vmtailor.drivers.qemu import qemu
from vmtailor.drivers.rootfs import rootfs
from vmtailor.drivers.rootfs.initramfs import baseline_initramfs, requested
from vmtailor.drivers.rootfs.tracer_volume import write_tools_volume
from vmtailor.model.architecture import presumed
from vmtailor.model.boots.ending import Ending
from vmtailor.model.boots.workload import NETWORK, Run, Terminal
from vmtailor.model.exercise import Exercise, Expect, Ready, ReadyKind, Step, StepKind
from vmtailor.model.guest import GuestReport
from vmtailor.model.image import ImageConfig
from vmtailor.model.machine import Disk, DiskMode, Machine

pytestmark = pytest.mark.system

#: Host seconds of one boot, on a busy machine.
BOOT_S = 240.0
KEY = bytes(range(16))
APPLETS = (
    "sh",
    "cat",
    "id",
    "env",
    "pwd",
    "sleep",
    "httpd",
    "wget",
    "echo",
    "stty",
    "kill",
    "ps",
    "true",
    "head",
    "tty",
    "hostname",
    "wc",
    "ls",
    "od",
    "mount",
    "setsid",
    "mknod",
)
CONFIG = ImageConfig(
    "amd64", entrypoint=("/bin/sh", "-c"), cmd=("echo image; exit 3",), env=(("A", "b c"), ("LATE", "image")),
    working_dir="/new/dir", user="www-data", volumes=("/data/one", "/linked/volume"),
)  # fmt: skip


#: An access control list: root may write, user 33 may read, nobody else.
FOR_WWW_DATA = struct.pack("<I", 2) + b"".join(
    struct.pack("<HHI", *entry)
    for entry in ((1, 6, 2**32 - 1), (2, 4, 33), (4, 0, 2**32 - 1), (0x10, 4, 2**32 - 1), (0x20, 0, 2**32 - 1))
)


@dataclass(frozen=True)
class Bench:
    """What every boot here shares."""

    machine: Machine
    folder: Path


def image_archive(path: Path) -> None:
    """A root file system of one static program and its names."""
    busybox = Path(require_tool("busybox", "busybox-static")).read_bytes()
    files = {
        "etc/passwd": b"root:x:0:0:root:/root:/bin/sh\nwww-data:x:33:33:www:/srv:/bin/false\n",
        "etc/group": b"root:x:0:\nwww-data:x:33:\nextra:x:44:foo,www-data\n",
        "srv/index.html": b"hello from the vm\n",
        "srv/hosts": b"of the image\n" * 40,
    }
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:

        def add(
            name: str, kind: bytes, data: bytes = b"", target: str = "", mode: int = 0o755, acl: bytes = b""
        ) -> None:
            info = tarfile.TarInfo(name)
            info.type, info.size, info.linkname, info.mode = kind, len(data), target, mode
            if acl:
                info.pax_headers = {"SCHILY.xattr.system.posix_acl_access": acl.decode("utf-8", "surrogateescape")}
            archive.addfile(info, io.BytesIO(data))

        for folder in ("bin", "etc", "srv"):
            add(folder, tarfile.DIRTYPE)
        add("tmp", tarfile.DIRTYPE, mode=0o1777)
        add("bin/busybox", tarfile.REGTYPE, busybox)
        for name in APPLETS:
            add(f"bin/{name}", tarfile.SYMTYPE, target="busybox")
        for name, data in files.items():
            add(name, tarfile.REGTYPE, data, mode=0o644)
        add("srv/closed", tarfile.REGTYPE, b"for root alone\n", mode=0o640)
        add("srv/listed", tarfile.REGTYPE, b"for www-data alone\n", mode=0o640, acl=FOR_WWW_DATA)
        # Links of an image whose files an engine gives, and to folders that are not there.
        add("etc/hosts", tarfile.SYMTYPE, target="../srv/hosts")
        add("etc/resolv.conf", tarfile.SYMTYPE, target="/run/nowhere/resolv.conf")
        add("etc/hostname", tarfile.SYMTYPE, target="/.vmtailor/client")  # what init may write
        add("linked", tarfile.SYMTYPE, target="srv/behind/folder")
        add("srv/alien", tarfile.REGTYPE, b"\x7fELF\x02 of another machine")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return make_bench(tmp_path_factory.mktemp("guest"))


def make_bench(folder: Path) -> Bench:
    natives = locate()
    kernel = packaged_baseline.provide(selection.of_host(), presumed(), Store())
    baseline_initramfs(folder / "initrd", stage1=natives.stage1, modules=Path(kernel.modules_dir))
    image_archive(folder / "image.tar")
    rootfs.build(folder / "image.tar", folder / "root.erofs", extra=root_entries(natives, config_bytes(CONFIG)))
    words = "root=/dev/vda ro rootfstype=erofs init=/.vmtailor/init console=ttyS0 quiet panic=-1 reboot=t nokaslr"
    machine = Machine(
        "microvm", 256 << 20, kernel.vmlinuz, tuple(words.split()), str(folder / "initrd"),
        (Disk(str(folder / "root.erofs")),), acpi=True,
    )  # fmt: skip
    return Bench(machine, folder)


def boot(
    bench: Bench, run: Run | None, act: Callable[[TalkingSession], None] | None = None, *, disks: tuple[Disk, ...] = (),
    words: tuple[str, ...] = (), kind: str = "microvm", network: bool = False,
) -> GuestReport:  # fmt: skip
    """One boot to its end."""
    volumes: tuple[Disk, ...] = ()
    if run is not None:
        write_run_volume(bench.folder / "run", run)
        volumes, words = (Disk(str(bench.folder / "run"), mode=DiskMode.WRITTEN),), (*words, "VT_RUN=1")
    base = bench.machine
    machine = Machine(
        kind, base.memory_bytes, base.kernel, (*base.words, *words), base.initrd, (*base.disks, *volumes, *disks),
        network=network, acpi=kind == "microvm",
    )  # fmt: skip
    with qemu.start(machine) as running:
        session = TalkingSession(running.serial, key=run.key if run is not None else None)
        if act is not None:
            act(session)
        assert session.run(BOOT_S), f"still running:\n{session.report()}"
        assert running.wait(30.0).ending == Ending.EXITED
    report = session.report()
    assert report.lost == 0
    return report


def sh(script: str) -> tuple[str, ...]:
    return ("/bin/sh", "-c", script)


def heard(text: str) -> Callable[[TalkingSession], bool]:
    return lambda session: text in session.report().stdout


def asks_again(text: str) -> Callable[[TalkingSession], bool]:
    """Whether a shell shows its prompt after a text: what is typed earlier is echoed into what a program still says."""
    return lambda session: "# " in session.report().stdout.partition(text)[2]


def test_a_container_finds_what_engines_give(bench: Bench) -> None:
    script = (
        "echo problem >&2; id; env; pwd; hostname; cat /etc/hosts; ls -ld /data/one /new/dir; ls -l /dev; "
        "echo again > /dev/stdout; touch /tmp/writable && echo wrote; mount; cat /srv/listed /srv/closed; exit 3"
    )
    report = boot(bench, Run(key=KEY, argv=sh(script), env=(("LATE", "run"), ("C", "")), hostname="box"))
    out = report.stdout
    assert report.exit_code == 3
    assert "uid=33(www-data) gid=33(www-data) groups=33(www-data),44(extra)" in out
    assert (
        "for www-data alone" in out and report.stderr == "problem\ncat: can't open '/srv/closed': Permission denied\n"
    )
    for line in ("A=b c", "LATE=run", "C=", "HOME=/srv", "HOSTNAME=box", "/new/dir", "box", "again", "wrote"):
        assert line in out.splitlines(), line
    assert "127.0.0.1\tlocalhost" in out
    assert "of the image" not in out
    assert "VT_" not in out
    assert re.search(r"crw-rw-rw-\s+1 root\s+root\s+1,\s+3 .*null", out)
    for kind in ("proc on /proc", "tmpfs on /dev", "devpts on /dev/pts", "tmpfs on /dev/shm", "mqueue on /dev/mqueue"):
        assert kind in out
    assert report.notes == ()
    assert [mark.name for mark in report.marks] == ["init", "entry", "end"]
    cycles = [mark.cycles for mark in report.marks]
    assert cycles == sorted(cycles)
    assert "virtio_blk" in report.file("modules")
    assert re.search(r"^overlay \.text 0xffffffff", report.file("module-sections"), re.MULTILINE)
    assert "Run /init as init process" in report.file("kernel-log")


def test_surroundings_are_those_of_an_engine(bench: Bench) -> None:
    """Links, limits, settings and variables; each line is one of them."""
    script = (
        "busybox readlink /etc/hosts; busybox readlink /etc/mtab; [ -L /etc/resolv.conf ] || echo own resolver; "
        "[ -L /etc/hostname ] || echo own name; [ -s /.vmtailor/client ] && echo whole client; "
        "cat /etc/resolv.conf /srv/hosts; echo home=$HOME; pwd -P; ls -d /srv/behind/folder/volume; "
        "busybox grep processes /proc/self/limits; cat /proc/sys/net/ipv4/ping_group_range; "
        "httpd -p 80 -h /srv && wget -q -O - http://localhost/"
    )
    report = boot(
        bench,
        Run(key=KEY, argv=sh(script), env=(("HOME", ""),), cwd="/linked/work", network=NETWORK),
        network=True,
    )
    out = report.stdout.splitlines()
    assert report.notes == ()
    assert out[:4] == ["../srv/hosts", "/proc/mounts", "own resolver", "own name"]
    assert "whole client" in out  # our programs are not the image's files, wherever its links lead
    assert "nameserver 10.0.2.3" in out
    assert "127.0.0.1\tlocalhost" in out
    assert "::1\tip6-localhost ip6-loopback" in out
    assert "home=/srv" in out
    assert "/srv/behind/folder/work" in out
    assert "/srv/behind/folder/volume" in out
    assert re.search(r"^Max processes +unlimited +unlimited", report.stdout, re.MULTILINE)
    assert "0\t2147483647" in out
    assert "hello from the vm" in out


def test_an_entry_point_is_pid_one(bench: Bench) -> None:
    """As in an engine: its number, its descriptors, its orphans, what signals do to it, and what is read-only."""
    script = (
        "echo own $$; ls -l /proc/1/fd/1; "
        'busybox awk \'$2 == "/proc" || $2 == "/proc/sys"\' /proc/mounts; kill 1; kill -HUP 1; '
        "echo to itself > /proc/1/fd/1; (echo 1 > /proc/sys/vm/drop_caches) 2>&1; ls -d /proc/[0-9]*; exit 6"
    )
    load = (Step(StepKind.COMMAND, argv=sh("[ $$ -gt 1 ]"), expect=Expect(exit_code=0)),)
    report = boot(bench, Run(key=KEY, argv=sh(script), user="root"))
    out = report.stdout.splitlines()
    assert (report.exit_code, report.notes) == (6, ())
    assert out[0] == "own 1"
    assert "pipe:[" in out[1]
    assert [line.split()[1] for line in out if line.split()[2:3] == ["proc"]] == ["/proc", "/proc/sys"]
    assert "to itself" in out
    assert "Read-only file system" in report.stdout
    assert "/proc/1" in out
    # BusyBox's init refuses any other number. A command of the exercise is of its namespace.
    exercise = Exercise(
        "test", Ready(ReadyKind.COMMAND, Step(StepKind.COMMAND, argv=sh("[ -d /proc/1 ]"))), load, stop_timeout_s=1
    )
    report = boot(bench, Run(key=KEY, argv=("busybox", "init"), user="root", exercise=exercise))
    assert "must be run as PID 1" not in report.stdout + report.stderr
    assert [(result.done, result.right) for result in report.results] == [(1, 1), (1, 1)]


@pytest.mark.parametrize(("trap", "exit_code", "deaf"), [("trap 'exit 3' TERM; ", 3, False), ("", 137, True)])
def test_an_entry_point_that_cannot_hear_the_stop_is_killed_at_once(
    bench: Bench, trap: str, exit_code: int, deaf: bool
) -> None:
    ready = Ready(ReadyKind.COMMAND, Step(StepKind.COMMAND, argv=("true",)))
    script = trap + "while true; do sleep 1; done"
    report = boot(bench, Run(key=KEY, argv=sh(script), user="root", exercise=Exercise("test", ready)))
    assert report.exit_code == exit_code
    assert [note.text for note in report.notes if "has no effect on PID 1" in note.text] == [
        "signal 15 has no effect on PID 1, which does not handle it: killed"
    ] * deaf


def test_the_image_alone_on_a_pc_with_pci(bench: Bench) -> None:
    report = boot(bench, None, kind="q35")
    assert (report.stdout, report.exit_code, report.fatal) == ("image\n", 3, None)


def test_an_exercise_traced_and_with_a_network(bench: Bench) -> None:
    write_tools_volume(bench.folder / "tools.erofs")
    out = bench.folder / "trace"
    with out.open("wb") as file:
        file.truncate(64 << 20)
    ready = Ready(ReadyKind.COMMAND, Step(StepKind.COMMAND, argv=("wget", "-q", "-O", "-", "http://127.0.0.1/")))
    load = (
        Step(StepKind.HTTP, port=80, repeat=5, expect=Expect(status=200, stdout="hello from the vm\n")),
        Step(StepKind.HTTP, port=80, path="/none", repeat=2, expect=Expect(status=200)),
        Step(StepKind.COMMAND, argv=sh("id -un; exit 4"), expect=Expect(exit_code=4, contains="www-data")),
        Step(StepKind.COMMAND, argv=sh("echo no >&2; exit 1"), repeat=2, expect=Expect(exit_code=0)),
    )
    run = Run(
        key=KEY, argv=sh("sleep 1000 & exec httpd -f -p 0.0.0.0:80 -h /srv"), tracer=TRACER_OPTIONS,
        exercise=Exercise("test", ready, load, stop_signal="SIGINT"), network="10.0.2.15/24,10.0.2.2,10.0.2.3",
        user="root", pid_one=False,
    )  # fmt: skip
    report = boot(
        bench, run, network=True,
        disks=(Disk(str(bench.folder / "tools.erofs")), Disk(str(out), mode=DiskMode.WRITTEN)),
        words=("VT_TOOLS=erofs", "VT_OUT=1"),
    )  # fmt: skip
    assert (report.exit_code, report.signal) == (130, 2)
    assert report.notes == ()
    assert [(result.done, result.right, result.why) for result in report.results] == [
        (1, 1, ""),
        (5, 5, ""),
        (2, 0, "status 404, not 200"),
        (1, 0, "does not contain 'www-data'"),
        (2, 0, "exit status 1, not 0: no"),
    ]
    assert [mark.name for mark in report.marks] == ["init", "entry", "ready", "load", "load_end", "stop", "end"]
    lines = out.read_bytes().rstrip(b"\0").decode().splitlines()
    own = [line for line in lines if line.startswith("+++ vmtailor")]
    names = ["entry", "ready", "load", "load_end", "stop", "end of trace"]
    assert own == [f"+++ vmtailor {name} +++" for name in names]
    strange = [line for line in lines if not re.match(r"\d+ +\d+\.\d{6} |\+\+\+ vmtailor ", line)]
    assert strange == []
    log = "\n".join(lines)
    assert log.count('execve("/.vmtailor/init", ["/.vmtailor/init", "--exec"') >= 5
    assert re.search(r'execve\("/bin/sh", \["/bin/sh", "-c", "sleep 1000', log)
    # The program that was left behind was ended, and its tracer stayed until that, too, was on record.
    assert re.search(r"killed by SIGTERM", log)


def test_a_watched_run_has_another_time_and_other_numbers(bench: Bench) -> None:
    """So that output which varies by itself is told by two runs of one machine (analysis/guests/varying_output.py)."""
    write_tools_volume(bench.folder / "tools.erofs")
    with (bench.folder / "trace").open("wb") as file:
        file.truncate(64 << 20)
    script = sh("busybox date '+%Y-%m-%d %H:%M'; sh -c 'echo of process $$; :'; echo done")
    alone = boot(bench, Run(key=KEY, argv=script))
    watched = boot(
        bench, Run(key=KEY, argv=script, tracer=TRACER_OPTIONS),
        disks=(Disk(str(bench.folder / "tools.erofs")), Disk(str(bench.folder / "trace"), mode=DiskMode.WRITTEN)),
        words=("VT_TOOLS=erofs", "VT_OUT=1"),
    )  # fmt: skip
    time, number = Output(watched.stdout, alone.stdout).varying()
    assert time.endswith("*:*")
    assert number == "of process *"


def test_a_terminal(bench: Bench) -> None:
    def act(session: TalkingSession) -> None:
        assert session.run(BOOT_S, heard("# "))
        session.send_stdin(b"tty; stty size; echo $TERM; ls -l /dev/console\n")
        assert session.run(BOOT_S, asks_again(" 136, "))
        session.resize(40, 132)
        session.send_stdin(b"stty size; sleep 100\n")
        assert session.run(BOOT_S, heard("40 132"))
        session.send_stdin(b"\x03exit 9\n")

    report = boot(bench, Run(key=KEY, argv=("sh",), user="root", terminal=Terminal(30, 100), stdin=True), act)
    assert report.exit_code == 9
    for line in ("/dev/pts/0", "30 100", "xterm"):
        assert line in report.stdout.splitlines()
    assert re.search(r"^crw.* 136, +0 .*/dev/console\r$", report.stdout, re.MULTILINE)


def test_input_signals_orphans_and_a_forger(bench: Bench) -> None:
    data = bytes(range(256)) * 30

    def act(session: TalkingSession) -> None:
        session.send_stdin(data)
        session.end_stdin()
        assert session.run(BOOT_S, heard("waiting"))
        session.send_signal(10)

    forged = "".join(f"\\{byte:03o}" for byte in encode("X", b"0 0 ", 200))
    script = (
        f"wc -c; mknod /dev/line c 4 64; printf '{forged}' > /dev/line; trap 'echo usr1; kill -9 $$' USR1; "
        "(trap '' TERM; sleep 1000; echo survived) & (sleep 500 & sleep 0.1; echo orphaned); "
        "mount -t xfs none /tmp 2>/dev/null; echo waiting; while true; do sleep 0.1; done"
    )
    # Only the privileged may open the line, and mount.
    run = Run(key=KEY, argv=sh(script), user="root", stdin=True, privileged=True, pid_one=False)
    report = boot(bench, run, act)
    assert report.stdout.splitlines() == [str(len(data)), "orphaned", "waiting", "usr1"]
    assert (report.exit_code, report.signal) == (137, 9)
    assert requested(report.file("kernel-log")) == ("fs-xfs",)
    assert report.damaged >= 1  # the forged frame, which was taken for nothing else


@pytest.mark.parametrize(
    ("run", "code", "reason", "fatal"),
    [
        (Run(key=KEY, argv=("nope",)), 127, "execve(nope): No such file or directory", ""),
        pytest.param(
            Run(key=KEY, argv=("/etc/passwd",)),
            126,
            "execve(/etc/passwd): Permission denied",
            "",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            Run(key=KEY, argv=("/srv/alien",)), 126, "execve(/srv/alien): Exec format error", "", marks=pytest.mark.slow
        ),
        pytest.param(
            Run(key=KEY, argv=("/etc/passwd/x",)),
            126,
            "execve(/etc/passwd/x): Not a directory",
            "",
            marks=pytest.mark.slow,
        ),
        (Run(key=KEY, user="nobody"), None, "", "user 'nobody': no such user in /etc/passwd"),
    ],
)
def test_what_cannot_be_started_says_why(bench: Bench, run: Run, code: int | None, reason: str, fatal: str) -> None:
    report = boot(bench, run)
    assert report.exit_code == code
    assert report.exit_reason == reason
    assert (report.fatal.text if report.fatal is not None else "") == fatal


def test_a_container_that_never_becomes_ready_is_stopped(bench: Bench) -> None:
    ready = Ready(ReadyKind.TCP, Step(StepKind.HTTP, port=81), timeout_s=3)
    run = Run(
        key=KEY, argv=sh("trap '' TERM; while true; do sleep 1; done"),
        exercise=Exercise("test", ready, stop_timeout_s=2),
    )  # fmt: skip
    report = boot(bench, run)
    assert (report.exit_code, report.signal) == (137, 9)
    result = report.ready
    assert result is not None
    assert not result.ok
    assert result.why == "connect: Connection refused"
    assert report.mark("ready") is None
    assert any("not ready within 3000 ms" in note.text for note in report.notes)
    # An emulated machine is slower than a real one, and waits for longer.
    assert result.virtual_ns >= 3_000_000_000


#: A container that never rests, and learns that it is ready from the ready check itself.
RESTLESS = "(while true; do :; done) & while [ ! -e /tmp/asked ]; do sleep 0.05; done; sleep 0.5; "
ASKED = Ready(ReadyKind.COMMAND, Step(StepKind.COMMAND, argv=sh("echo > /tmp/asked")))


def test_the_load_waits_for_a_machine_at_rest_but_not_for_ever(bench: Bench) -> None:
    load = (Step(StepKind.COMMAND, argv=("true",), expect=Expect(exit_code=0)),)
    report = boot(
        bench, Run(key=KEY, argv=sh(RESTLESS + "while true; do sleep 1; done"), exercise=Exercise("test", ASKED, load))
    )
    assert [(result.done, result.right) for result in report.results] == [(1, 1), (1, 1)]
    ready, begun = report.mark("ready"), report.mark("load")
    assert ready is not None
    assert begun is not None
    assert begun.realtime_ns - ready.realtime_ns >= 2_000_000_000


def test_a_container_that_ends_before_its_load_begins_has_failed_it(bench: Bench) -> None:
    load = (Step(StepKind.COMMAND, argv=("true",), expect=Expect(exit_code=0)),)
    report = boot(bench, Run(key=KEY, argv=sh(RESTLESS), exercise=Exercise("test", ASKED, load)))
    assert report.mark("load") is None
    assert [(result.step, result.ok, result.why) for result in report.results] == [
        (-1, True, ""),
        (0, False, "the entry point ended during the load"),
    ]
