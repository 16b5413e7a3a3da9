# SPDX-License-Identifier: Apache-2.0
"""A container that wants more than it was given: what its root can do to init, line, judge and machine."""

from __future__ import annotations

import re

import pytest
from tests.fakes.talking_session import TalkingSession
from tests.system.test_guest import BOOT_S, KEY, Bench, boot, heard, make_bench, sh

from vmtailor.drivers.guest.guest_volume import TRACER_OPTIONS
from vmtailor.drivers.rootfs.tracer_volume import write_tools_volume
from vmtailor.model.boots.workload import Run
from vmtailor.model.exercise import Exercise, Expect, Ready, ReadyKind, Step, StepKind
from vmtailor.model.guest import GuestReport
from vmtailor.model.machine import Disk, DiskMode

pytestmark = [pytest.mark.system, pytest.mark.attack]

#: What container engines leave root, and everything, as /proc/self/status writes them.
ENGINES, NONE = "00000000a80425fb", "0000000000000000"
SHOW = ("sh", "-c", "grep -E '^(Cap|NoNew)' /proc/self/status")
APPLETS = "for name in dd grep poweroff tr umount yes; do busybox ln -s busybox /bin/$name; done 2>/dev/null; "


def of_root(permitted: str, bounding: str) -> str:
    """The lines that SHOW writes."""
    names = (("CapInh", NONE), ("CapPrm", permitted), ("CapEff", permitted), ("CapBnd", bounding), ("CapAmb", NONE))
    return "".join(f"{name}:\t{value}\n" for name, value in names) + "NoNewPrivs:\t0\n"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return make_bench(tmp_path_factory.mktemp("hostile"))


def attempts(commands: dict[str, str]) -> str:
    """A script that tries each command and says how it ended: `NAME: done`, or `NAME: refused`."""
    return "".join(f"if ({command}) >/dev/null 2>&1; then echo {n}: done; else echo {n}: refused; fi; "
                   for n, command in commands.items())  # fmt: skip


def outcomes(report: GuestReport) -> dict[str, str]:
    found = re.findall(r"^(\S+): (done|refused)$", report.stdout, re.MULTILINE)
    return dict(found)


#: What root tries, with only what engines leave it. None may succeed.
BEYOND = {
    "mount": "mount -t tmpfs none /tmp",
    "hostname": "hostname other",
    "uncover-programs": "umount /.vmtailor",
    "uncover-settings": "umount /proc/sys",
    "other-client": "echo > /.vmtailor/client",
    "other-init": "echo > /.vmtailor/init",
    "no-client": "rm /.vmtailor/client",
    "core-pattern": "echo '|/bin/sh' > /proc/sys/kernel/core_pattern",
    "modprobe": "echo /bin/sh > /proc/sys/kernel/modprobe",
    "sysrq": "echo b > /proc/sysrq-trigger",
    "line-read": "mknod /dev/a c 4 64; dd if=/dev/a bs=1 count=1",
    "line-write": "mknod /dev/b c 4 64; echo flood > /dev/b",
    "console-write": "mknod /dev/c c 5 1; echo flood > /dev/c",
    "memory": "mknod /dev/d c 1 1; dd if=/dev/d bs=4096 count=1",
    "ports": "mknod /dev/e c 1 4; dd if=/dev/e bs=1 count=1",
    "kernel-memory": "dd if=/proc/kcore bs=4096 count=1",
    "init-memory": "dd if=/proc/1/mem bs=4096 count=1 skip=458752",
    "init-environment": "grep . /proc/1/environ",
    "init-root": "ls /proc/1/root/",
    "init-descriptors": "dd if=/proc/1/fd/10 bs=1 count=1",
    "init-map": "grep . /proc/1/maps",
    "power-off": "poweroff -f",
}

#: Every disk there is, read from its first byte; PAD is in a sector of the run volume that may be read.
DISKS = (
    "for major in $(busybox sed '1,/^Block/d' /proc/devices | busybox awk '{print $1}'); do "
    "for minor in 0 16 32 48; do "
    "mknod /dev/disk b $major $minor; dd if=/dev/disk bs=64k count=8 2>/dev/null | tr '\\0' '\\n' | "
    "grep -o -e $KEYTEXT -e run-volume-here | busybox sed s/^/found:/; rm /dev/disk; done; done; "
)


def test_root_has_what_engines_leave_it(bench: Bench) -> None:
    signals = "for number in $(busybox seq 1 64); do kill -$number 1; done 2>/dev/null; "
    # The script asks for the key in two halves, so that it does not hold it itself.
    text = KEY.hex()
    script = (
        APPLETS + " ".join(SHOW[2:]) + "; " + attempts(BEYOND)
        + f"KEYTEXT={text[:9]}''{text[9:]}; " + DISKS + signals + "echo alive; exit 5"
    )  # fmt: skip
    pad = (("PAD", "run-volume-here " + "x" * 9000),)
    run = Run(key=KEY, argv=sh(script), user="root", env=pad, pid_one=False)  # so that it sees init
    report = boot(bench, run)
    assert report.exit_code == 5, report.stdout + report.stderr
    assert of_root(ENGINES, ENGINES) in report.stdout
    assert outcomes(report) == dict.fromkeys(BEYOND, "refused")
    found = re.findall(r"^found:(.*)$", report.stdout, re.MULTILINE)
    assert set(found) == {"run-volume-here"}  # the volume was read; the key is not on it any more
    assert "alive" in report.stdout.splitlines()
    assert report.damaged == 0


def test_the_privileged_have_everything(bench: Bench) -> None:
    tried = {name: BEYOND[name] for name in ("mount", "hostname", "core-pattern", "line-write", "uncover-settings")}
    script = APPLETS + " ".join(SHOW[2:]) + "; " + attempts({**tried, "settings": "echo 5 > /proc/sys/vm/swappiness"})
    report = boot(bench, Run(key=KEY, argv=sh(script), user="root", privileged=True))
    match = re.search(r"CapBnd:\t(\w+)", report.stdout)
    assert match is not None
    everything = match[1]
    assert int(everything, 16) & (int(everything, 16) + 1) == 0 and int(everything, 16) > 1 << 36  # no gap
    assert of_root(everything, everything) in report.stdout
    expected = dict.fromkeys(tried, "done") | {"settings": "done", "uncover-settings": "refused"}
    assert outcomes(report) == expected  # nothing covers the settings


def with_tracer(bench: Bench) -> tuple[tuple[Disk, ...], tuple[str, ...]]:
    """The disks of a traced boot, and the words of the kernel's command line that name them."""
    write_tools_volume(bench.folder / "tools.erofs")
    with (bench.folder / "trace").open("wb") as file:
        file.truncate(64 << 20)
    disks = (Disk(str(bench.folder / "tools.erofs")), Disk(str(bench.folder / "trace"), mode=DiskMode.WRITTEN))
    return disks, ("VT_TOOLS=erofs", "VT_OUT=1")


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize(
    ("user", "permitted"), [("root", ENGINES), pytest.param("www-data", NONE, marks=pytest.mark.slow)]
)
def test_all_see_the_same_whoever_watches(bench: Bench, traced: bool, user: str, permitted: str) -> None:
    disks, words = with_tracer(bench) if traced else ((), ())
    lines = of_root(permitted, ENGINES)
    ready = Ready(ReadyKind.COMMAND, Step(StepKind.COMMAND, argv=("true",)))
    step = Step(StepKind.COMMAND, argv=SHOW, repeat=2, expect=Expect(exit_code=0, stdout=lines))
    run = Run(
        key=KEY, argv=sh(f"{SHOW[2]}; while true; do sleep 1; done"), user=user,
        exercise=Exercise("test", ready, (step,)),
        tracer=TRACER_OPTIONS if traced else (),
    )  # fmt: skip
    report = boot(bench, run, disks=disks, words=words)
    assert report.stdout == lines
    assert [(result.done, result.right, result.why) for result in report.results] == [(1, 1, ""), (2, 2, "")]


def test_no_file_has_a_name_that_says_how_a_traced_command_is_started(bench: Bench) -> None:
    """Root could open it, and have the command start with everything. A name would change the time of /dev."""
    disks, words = with_tracer(bench)
    entry = "echo > /tmp/before; sleep 3; echo > /tmp/after; while true; do sleep 1; done"
    ready = Ready(ReadyKind.COMMAND, Step(StepKind.COMMAND, argv=sh("[ -e /tmp/after ]")))
    unchanged = "[ /tmp/after -nt /tmp/before ] && ! [ /dev -nt /tmp/before ]"
    step = Step(StepKind.COMMAND, argv=sh(unchanged), repeat=2, expect=Expect(exit_code=0))
    run = Run(
        key=KEY, argv=sh(entry), user="root", exercise=Exercise("test", ready, (step,)), tracer=TRACER_OPTIONS
    )  # fmt: skip
    report = boot(bench, run, disks=disks, words=words)
    assert [(result.done, result.right, result.why) for result in report.results[1:]] == [(2, 2, "")]


def test_the_judge_cannot_be_read_or_steered(bench: Bench) -> None:
    script = APPLETS + (
        "while [ -z $judge ]; do for p in /proc/[0-9]*; do "
        "case $(tr '\\0' ' ' 2>/dev/null < $p/cmdline) in /.vmtailor/client*) judge=$p;; esac; done; done; "
        + attempts({"memory": "grep . $judge/maps", "environment": "dd if=$judge/environ count=1",
                    "descriptors": "dd if=$judge/fd/1 bs=1 count=1", "there": "ls $judge/"})
        + "echo hello > /tmp/index.html; exec httpd -f -p 81 -h /tmp"
    )  # fmt: skip
    ready = Ready(ReadyKind.HTTP, Step(StepKind.HTTP, port=81, path="/index.html", expect=Expect(status=200)))
    report = boot(bench, Run(key=KEY, argv=sh(script), user="root", exercise=Exercise("test", ready)))
    assert report.ready is not None and report.ready.ok
    assert outcomes(report) == {
        "memory": "refused", "environment": "refused", "descriptors": "refused", "there": "done",
    }  # fmt: skip


@pytest.mark.parametrize(
    "script",
    [
        "b() { b & b & wait; }; echo under way; b",
        "(while true; do cat < /dev/stdout > /dev/null; done) & echo under way; while true; do echo under way; done",
        "echo under way; busybox yes | busybox tee /dev/stderr",
    ],
    ids=["forks", "steals its own output", "floods"],
)
def test_init_hears_the_stop_whatever_goes_on(bench: Bench, script: str) -> None:
    def act(session: TalkingSession) -> None:
        assert session.run(BOOT_S, heard("under way"))
        session.send_signal(9)

    report = boot(bench, Run(key=KEY, argv=sh(script), user="root"), act)
    assert (report.exit_code, report.signal) == (137, 9)
