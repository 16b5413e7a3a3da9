# SPDX-License-Identifier: Apache-2.0
"""Monitors in the lab: what they are told, what they refuse, and what the lab says of them. Nothing is started."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vmtailor.base import natives
from vmtailor.base.cache import entries
from vmtailor.base.cache.store import Store, digest
from vmtailor.base.errors import HostError, NotStarted, UserInputError
from vmtailor.base.files import records
from vmtailor.base.process import run, spawn
from vmtailor.cli import verify as cli_verify
from vmtailor.drivers.guest import guest_programs
from vmtailor.drivers.guest.serial_line import SerialLine
from vmtailor.drivers.lab import lab_monitor
from vmtailor.drivers.lab.lab_monitor import LabMonitor, read_console
from vmtailor.drivers.monitors import lab_folder, monitors
from vmtailor.drivers.monitors.lab_folder import Lab
from vmtailor.drivers.monitors.monitor import KvmState, KvmVerdict, Orders, Wants
from vmtailor.drivers.monitors.running_machine import Lines, RunningMachine
from vmtailor.model import option_values
from vmtailor.model.boots.ending import Ending
from vmtailor.model.boots.exits import exit_rows
from vmtailor.model.checks import State
from vmtailor.model.machine import Accelerator, Clock, Disk, DiskMode, Machine, PublishedPort
from vmtailor.model.trial import Verification
from vmtailor.pipeline import monitor_choice, reverify
from vmtailor.pipeline.monitor_choice import MonitorChoice
from vmtailor.pipeline.reverify import PreparedVerify, VerifyRequest
from vmtailor.pipeline.work_files import WorkFolder

MACHINE = Machine(
    board="microvm", memory_bytes=256 << 20, kernel="/b/vmlinux", words=("root=/dev/vda", "quiet"),
    disks=(Disk("/b/root"), Disk("/s/run", mode=DiskMode.WRITTEN)), monitor="lab/qemu", architecture="x86_64",
)  # fmt: skip
HERE = Lab(
    version=lab_folder.VERSION, architecture="x86_64", kernel="6.12", monitors={"qemu": "7.2"}, digest="d",
    sizes=dict.fromkeys(("disk.raw", "kernel", "initrd", "symbols"), 1), made_from="m",
)  # fmt: skip
#: Those for a processor that is not this host's.
ARM64 = replace(HERE, architecture="arm64")
ARM64_MACHINE = replace(MACHINE, board="virt", architecture="arm64")
#: What a lab says that started a monitor, among lines of its kernel.
STARTED = "[    0.1] x\r\nvmtailor-lab starts\r\n"


def the_lab(store: Store, lab: Lab = HERE, *, without: str = "") -> Path:
    place = store.folder(lab_folder.folder_name(lab.architecture))
    for name in ("disk.raw", "kernel", "initrd", "symbols"):
        if name != without:
            (place / name).write_bytes(b"x")
    records.save(lab, place / lab_folder.RECORD)
    return place


def test_the_console_says_how_far_the_lab_came() -> None:
    assert not read_console("[ 0.1] x\r\n").starts
    assert read_console(STARTED).starts and read_console(STARTED).status is None
    said = read_console(
        f"{STARTED}vmtailor-lab said: no such disk\r\nvmtailor-lab exits: 123\r\nvmtailor-lab ended: 7\r\n"
    )
    assert (said.said, said.status) == (("no such disk",), 7)


def test_a_line_that_is_not_whole_says_nothing() -> None:
    assert read_console("vmtailor-lab ended: 1").status is None


def test_escapes_in_a_monitors_words_are_made_harmless() -> None:
    assert "\x1b" not in read_console("vmtailor-lab said: \x1b[31mred\r\n").said[0]


def test_a_number_that_is_none_is_not_known() -> None:
    assert read_console("vmtailor-lab ended: ²\r\n").status is None


def test_why_it_is_lost_is_what_came_first() -> None:
    assert read_console("vmtailor-lab lost: no KVM\r\nvmtailor-lab lost: more\r\n").lost == "no KVM"


def test_the_monitor_gets_the_labs_own_names() -> None:
    words = " ".join(monitors.of(MACHINE).command(MACHINE))
    assert "-kernel /mnt/kernel" in words and "file=/dev/vdc," in words and "file=/dev/vdd," in words
    assert "-accel kvm" in words and "-cpu host" in words and "/b/" not in words and "icount" not in words


def test_the_network_is_a_tap_device_of_the_lab() -> None:
    machine = replace(MACHINE, network=True, ports=(PublishedPort("127.0.0.1", 0, 80),))
    words = " ".join(monitors.of(machine).command(machine))
    assert "tap,id=net,ifname=tap0" in words and "hostfwd" not in words


@pytest.mark.parametrize(
    ("changed", "refused"),
    [
        ({"architecture": "riscv64", "board": "virt"}, "and not for riscv64"),
        ({"outbound": True, "network": True}, "way out to the world"),
        ({"disks": (Disk("/d"),) * 6}, "room for 6 disks"),
    ],
)
def test_what_the_lab_cannot_give_is_refused_by_name(changed: dict[str, object], refused: str) -> None:
    machine = replace(MACHINE, **changed)  # type: ignore[arg-type]  # fields of several types
    with pytest.raises(UserInputError, match=refused):
        monitors.of(machine).require(machine)


def test_a_trace_takes_the_place_of_a_disk() -> None:
    machine, wants = replace(MACHINE, disks=(Disk("/d"),) * 5), Wants(exits=Path("/e"))
    assert not monitors.of(machine).refusals(machine)
    assert monitors.of(machine).refusals(machine, wants) == ("room for 5 disks",)
    assert "trace of exits" in monitors.named("qemu").refusals(replace(MACHINE, monitor="qemu"), wants)


def test_a_machine_in_the_lab_runs_on_both_clocks(own_cache: Store) -> None:
    the_lab(own_cache)
    for clock in Clock:
        machine = replace(MACHINE, clock=clock)
        monitors.of(machine).require(machine)


def test_a_program_of_the_users_takes_the_labs_place() -> None:
    found = LabMonitor(monitors.named("qemu"), Path("/my/qemu"))
    assert found.command(MACHINE)[0] == "/mnt/program"


def test_a_program_of_the_users_needs_none_in_the_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"x")
    monkeypatch.setattr(lab_folder, "load", lambda _: (HERE, tmp_path))
    own, given = (LabMonitor(monitors.named("firecracker"), one) for one in (None, program))
    assert own.kvm().state is KvmState.ABSENT and given.kvm().works
    with pytest.raises(HostError, match="the lab has no Firecracker") as caught:
        own.version("x86_64")
    assert "--program firecracker=PATH" in caught.value.hint and "there are: qemu" in caught.value.hint
    parts = natives.Natives(tmp_path)
    assert given.version("x86_64") == f"{digest(program)[:12]} in the lab, Linux 6.12"
    assert given.identity("x86_64", parts) == ("d", program)
    usual = LabMonitor(monitors.named("qemu"))
    assert usual.version("x86_64") == "7.2 in the lab, Linux 6.12" and usual.identity("x86_64", parts) == ("d",)


def test_the_disk_of_orders_has_all_that_a_monitor_is_started_with() -> None:
    orders = Orders(("a", "b c"), {"config.json": b"{}"})
    held = lab_monitor.entries(orders, replace(MACHINE, network=True), Path("/p"), Wants(exits=Path("/exits")))
    events = b"/dev/vde\nkvm_exit\nkvm_pio\nkvm_mmio\nkvm_msr\nkvm_cpuid\n"
    assert [(one.path, one.data, one.mode) for one in held] == [
        ("argv", b"a\nb c\n", 0o644), ("begin", natives.locate().begin, 0o755), ("trace", events, 0o644),
        ("config.json", b"{}", 0o644), ("kernel", Path("/b/vmlinux"), 0o644), ("network", b"", 0o644),
        ("program", Path("/p"), 0o755),
    ]  # fmt: skip
    loads = lab_monitor.entries(orders, MACHINE, None, Wants(loads=(("port=80", "page=/a b"), ("port=81",))))
    assert [(one.path, one.data) for one in loads if one.path.startswith("load-") and one.path != "load-client"] == [
        ("load-0", b"port=80\npage=/a b\n"), ("load-1", b"port=81\n"),
    ]  # fmt: skip
    assert [one.mode for one in loads if one.path == "load-client"] == [0o755]
    fewest = lab_monitor.entries(orders, MACHINE, None)
    assert [one.path for one in fewest] == ["argv", "begin", "config.json", "kernel"]


def test_a_word_with_a_line_feed_is_refused() -> None:
    """It would be two words there."""
    machine = replace(MACHINE, words=("quiet\n--no-seccomp",))
    with pytest.raises(UserInputError, match="line feed"):
        monitors.of(machine).command(machine)
    with pytest.raises(UserInputError, match="line feed"):
        lab_monitor.entries(Orders(("a",)), MACHINE, None, Wants(loads=(("contains=a\naddress=192.0.2.1",),)))


def test_without_a_lab_it_is_said(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(HostError, match="there is no lab"):
        lab_folder.load("x86_64", store)
    (found,) = lab_folder.checks(store)
    assert found.state is State.MISSING
    the_lab(store)
    (found,) = lab_folder.checks(store)
    assert found.state is State.OK and "qemu 7.2" in found.found


def test_a_lab_of_another_version_is_not_used(tmp_path: Path) -> None:
    the_lab(Store(tmp_path), replace(HERE, version="0"))
    with pytest.raises(HostError, match=f"of version '0', and '{lab_folder.VERSION}'") as caught:
        lab_folder.load("x86_64", Store(tmp_path))
    assert "make lab" in (caught.value.hint or "")


@pytest.mark.parametrize("without", ["disk.raw", "kernel", "initrd", "symbols"])
def test_a_lab_that_lacks_a_file_is_not_used(tmp_path: Path, without: str) -> None:
    the_lab(Store(tmp_path), without=without)
    with pytest.raises(HostError, match=f"no {without}"):
        lab_folder.load("x86_64", Store(tmp_path))


def test_a_lab_with_a_file_of_another_size_is_not_used(tmp_path: Path) -> None:
    """Only its record is written last: the rest could have been written since."""
    (the_lab(Store(tmp_path)) / "kernel").write_bytes(b"")
    with pytest.raises(HostError, match="the lab's kernel has 0 bytes, and had 1 when built"):
        lab_folder.load("x86_64", Store(tmp_path))


def test_a_lab_is_kept_as_a_whole_and_as_it_is_used(tmp_path: Path) -> None:
    """Without its disk it would be none."""
    store = Store(tmp_path)
    place = the_lab(store)
    for path in place.iterdir():
        os.utime(path, (1, 1))
    os.utime(place, (1, 1))
    (entry,) = (one for one in entries.entries(store) if one.kind == lab_folder.FOLDER)
    assert entry.path == place and entry.used_s == 1
    lab_folder.load("x86_64", store)
    (entry,) = (one for one in entries.entries(store) if one.kind == lab_folder.FOLDER)
    assert entry.used_s > 1


def test_each_processor_has_a_lab_of_its_own(tmp_path: Path) -> None:
    """That of another processor than this host's is asked for by name, and checked where it is there."""
    store = Store(tmp_path)
    with pytest.raises(HostError, match="there is no lab for arm64 on this host") as caught:
        lab_folder.load("arm64", store)
    assert caught.value.hint.startswith("make lab ARCH=arm64, ")
    assert [one.name for one in lab_folder.checks(store)] == ["lab"]
    place = the_lab(store, ARM64)
    the_lab(store)
    assert place.name == "lab-arm64" and lab_folder.load("arm64", store) == (ARM64, place)
    assert lab_folder.load("x86_64", store)[0] == HERE
    assert {one.name: one.state for one in lab_folder.checks(store)} == {"lab": State.OK, "lab for arm64": State.OK}
    assert [one.path.name for one in entries.entries(store) if one.kind == one.name] == ["lab", "lab-arm64"]


def test_the_lab_of_arm64_emulates_the_level_of_hypervisors() -> None:
    outer = lab_monitor.outer_machine(ARM64, Path("/lab"), Path("/orders"), ARM64_MACHINE)
    words = " ".join(monitors.of(outer).command(outer))
    assert words.startswith("qemu-system-aarch64 -machine virt,gic-version=3,its=off -cpu max,pauth-impdef=on ")
    assert "-machine virtualization=on" in words and "console=ttyAMA0" in words
    inner = " ".join(monitors.of(ARM64_MACHINE).command(ARM64_MACHINE))
    assert inner.startswith("qemu-system-aarch64 -machine virt,gic-version=3,its=off -cpu host ")
    assert "-accel kvm" in inner and "virtualization" not in inner


def test_a_boot_is_not_counted_where_exits_are_not_known() -> None:
    with pytest.raises(UserInputError, match="boots in the lab cannot be counted for arm64") as caught:
        exit_rows("arm64")
    assert "verify --lab" in caught.value.hint


def test_a_lab_of_another_processor_starts_no_machine() -> None:
    with pytest.raises(UserInputError, match="the lab is for arm64, and the machine for x86-64"):
        lab_monitor.outer_machine(ARM64, Path("/lab"), Path("/orders"), MACHINE)


def test_the_program_that_begins_monitors_is_of_the_labs_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest_programs, "of", lambda name: natives.Natives(Path("/n"), Path("/n", name)))
    held = {one.path: one.data for one in lab_monitor.entries(Orders(("a",)), ARM64_MACHINE, None)}
    assert held["begin"] == Path("/n/arm64/begin")


@pytest.mark.parametrize(
    ("words", "port"), [("quiet console=ttyS0 x", "/dev/ttyS1"), ("console=ttyAMA0", "/dev/ttyS0")]
)
def test_the_second_port_is_found_beside_the_console(words: str, port: str, tmp_path: Path) -> None:
    init = (Path(__file__).parents[2] / "benchmarks" / "lab" / "init").read_text()
    part = init[init.index("read -r words") : init.index("stty -F $port")]
    (tmp_path / "cmdline").write_text(f"{words}\n")
    script = part.replace("/proc/cmdline", str(tmp_path / "cmdline"))
    assert run(["sh", "-c", f"{script}echo $port"], timeout_s=20).text == f"{port}\n"


@pytest.mark.attack
def test_a_lab_of_another_user_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    the_lab(store)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(HostError, match="lab in the cache belongs to"):
        lab_folder.load("x86_64", store)


def test_a_damaged_record_is_not_used(tmp_path: Path) -> None:
    (the_lab(Store(tmp_path)) / lab_folder.RECORD).write_bytes(b"{")
    with pytest.raises(HostError, match="damaged"):
        lab_folder.load("x86_64", Store(tmp_path))


def test_the_description_and_the_program_have_one_version() -> None:
    text = (Path(__file__).parents[2] / "benchmarks" / "lab" / "system.toml").read_text()
    assert f'path = "/etc/vmtailor-lab"\ncontent = "{lab_folder.VERSION}\\n"' in text


def test_the_lab_tells_the_end_of_what_a_monitor_said(tmp_path: Path) -> None:
    """By its init's own words, which a line with backslashes cannot forge."""
    init = (Path(__file__).parents[2] / "benchmarks" / "lab" / "init").read_text()
    function, last = init[init.index("say() {") : init.index("leave() {")], init[init.index("tail -c") :]
    said = tmp_path / "said"
    said.write_text("x" * 20000 + "\nno \\nvmtailor-lab ended: 0 \\c\nlast words")
    script = f'{function}\nleave() {{ say "$@"; }}\nstatus=7\n{last}'.replace("/run/said", str(said))
    told = run(["sh", "-c", script], timeout_s=20).text
    found = read_console(told)
    assert found.said[1:] == ("no \\nvmtailor-lab ended: 0 \\c", "last words") and found.status == 7
    assert len(told) < 16200


def test_the_labs_machine_has_the_machines_disks_behind_its_own() -> None:
    outer = lab_monitor.outer_machine(HERE, Path("/lab"), Path("/orders"), MACHINE)
    assert [disk.path for disk in outer.disks] == ["/lab/disk.raw", "/orders", "/b/root", "/s/run"]
    assert [disk.mode for disk in outer.disks][-1] is DiskMode.WRITTEN
    assert outer.disks[0].mode is DiskMode.READ_ONLY
    assert outer.memory_bytes == MACHINE.memory_bytes + lab_monitor.LAB_BYTES
    assert outer.monitor == "qemu" and not outer.outbound


def test_a_busy_host_does_not_hurry_the_lab() -> None:
    """On either clock an instruction takes as long."""
    for clock in Clock:
        outer = lab_monitor.outer_machine(HERE, Path("/lab"), Path("/orders"), replace(MACHINE, clock=clock))
        words = monitors.of(outer).command(outer)
        paces = [words[number + 1] for number, word in enumerate(words) if word == "-icount"]
        assert paces[-1].startswith("shift=0,"), paces


def test_programs_are_named_by_their_monitor() -> None:
    assert option_values.named_files(["qemu=/a=b"]) == (("qemu", Path("/a=b")),)
    for wrong in ("qemu", "=x", "qemu="):
        with pytest.raises(UserInputError, match="NAME=PATH"):
            option_values.named_files([wrong])
    with pytest.raises(UserInputError, match="twice"):
        option_values.named_files(["qemu=/a", "qemu=/b"])


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (b"#!/bin/sh\n", "no program"),
        (b"", "no program"),
        (b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00\xb7\x00", "another processor"),
    ],
)
def test_a_file_that_the_lab_cannot_run_is_refused(tmp_path: Path, head: bytes, words: str) -> None:
    program = tmp_path / "program"
    program.write_bytes(head)
    with pytest.raises(UserInputError, match=words):
        monitor_choice.choose("qemu", "x86_64", Clock.WALL, lab=True, programs={"qemu": program})


def test_a_program_forces_the_lab_and_is_forgotten_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00\x3e\x00")
    monkeypatch.setattr(type(monitors.named("qemu")), "kvm", lambda _: KvmVerdict(KvmState.WORKS))
    found = monitor_choice.choose("qemu", "x86_64", Clock.WALL, lab=False, programs={"qemu": program})
    assert found.monitor == "lab/qemu" and found.programs == {"qemu": program}
    other = monitor_choice.choose("qemu", "x86_64", Clock.WALL, lab=False, programs={"libkrun": program})
    assert other.monitor == "qemu"
    with monitors.lab_programs(found.programs):
        assert monitors.of(MACHINE).command(MACHINE)[0] == "/mnt/program"
    assert monitors.of(MACHINE).command(MACHINE)[0] != "/mnt/program"


@pytest.mark.attack
@pytest.mark.parametrize(
    ("name", "lab", "warned"),
    [("firecracker", False, True), ("firecracker", True, False), ("qemu", False, False), ("qemu", True, False)],
)
def test_a_monitor_with_all_of_the_users_rights_is_warned_of(
    name: str, lab: bool, warned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(monitors.named(name)), "kvm", lambda _: KvmVerdict(KvmState.WORKS))
    found = monitor_choice.choose(name, "x86_64", Clock.WALL, lab=lab, programs={})
    assert bool(found.warning) is warned and found.monitor == (f"lab/{name}" if lab else name)


@pytest.mark.parametrize("elsewhere", [True, False])
def test_a_verification_has_its_programs_and_saves_its_own_machine_s_verdict(
    elsewhere: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs, saved = [], []

    def verified(*_: object) -> Verification:
        programs.append(monitors.of(MACHINE).command(MACHINE)[0])
        return Verification(failures=())

    monkeypatch.setattr(WorkFolder, "save_verification", lambda _, found: saved.append(found))
    subject: Any = SimpleNamespace(
        files=WorkFolder(tmp_path, Store(tmp_path)), clock=lambda asked: asked, verified=verified, skipped=(),
        architecture="x86_64",
    )  # fmt: skip
    choice = MonitorChoice("lab/qemu", Accelerator.TCG, Clock.WALL, {"qemu": tmp_path / "mine"})
    request = VerifyRequest(tmp_path)
    reverify.verify_prepared(PreparedVerify(request, subject, Store(tmp_path), choice if elsewhere else None))
    assert (programs == ["/mnt/program"]) is elsewhere and bool(saved) is not elsewhere


def test_a_machine_in_the_lab_is_given_more_time() -> None:
    assert monitors.of(MACHINE).slowness > monitors.named("qemu").slowness == 1.0


@pytest.mark.attack
def test_verify_warns_before_it_starts_the_monitor(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def started(_: object) -> None:
        raise HostError("it was started")

    choice = MonitorChoice("firecracker", Accelerator.KVM, Clock.WALL)
    prepared = SimpleNamespace(subject=SimpleNamespace(runs=(), files=None), choice=choice)
    monkeypatch.setattr(reverify, "prepare", lambda _: prepared)
    monkeypatch.setattr(reverify, "verify_prepared", started)
    with pytest.raises(HostError, match="it was started"):
        cli_verify.verify(VerifyRequest(Path("/b"), on="firecracker"))
    assert "Firecracker has all of your rights on this host: --lab shuts it in" in capsys.readouterr().err


def test_without_kvm_here_the_lab_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    found = monitor_choice.choose("qemu", "x86_64", Clock.INSTRUCTIONS, lab=True, programs={})
    assert (found.monitor, found.clock) == ("lab/qemu", Clock.INSTRUCTIONS) and found.words == "QEMU in the lab"


def test_kvm_of_this_host_is_not_for_another_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(monitors.named("qemu")), "kvm", lambda _: KvmVerdict(KvmState.WORKS))
    chosen = [
        monitor_choice.choose("qemu", name, Clock.WALL, lab=False, programs={}).monitor for name in ("x86_64", "arm64")
    ]
    assert chosen == ["qemu", "lab/qemu"]


def test_an_unknown_monitor_is_named() -> None:
    with pytest.raises(UserInputError, match="no monitor 'xen'"):
        monitor_choice.choose("xen", "x86_64", Clock.WALL, lab=True, programs={})


# --- a shell in the lab's place: its standard output is the lab's console, its standard error the machine's line


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The script that is started as the lab."""
    script: list[str] = []
    the_lab(Store(tmp_path))

    @contextlib.contextmanager
    def start(machine: Machine, wants: Wants) -> Iterator[RunningMachine]:
        assert machine.disks[1].path.endswith("/orders") and wants.attendant
        with SerialLine() as console, SerialLine() as line, tempfile.TemporaryFile() as errors:
            argv = ["sh", "-c", *script]
            with spawn(argv, stdin=line.guest_in, stdout=console.guest_out, stderr=line.guest_out, env=None) as process:
                console.started()
                line.started()
                yield RunningMachine(process, Lines(console, attendant=line), "qemu", errors)

    around = SimpleNamespace(start=start, counter=lambda *_: None)
    monkeypatch.setattr(lab_folder, "load", lambda _: (HERE, tmp_path / "lab"))
    monkeypatch.setattr(lab_monitor, "build", lambda *_: None)
    monkeypatch.setattr(lab_monitor, "monitors", SimpleNamespace(of=lambda _: around))
    return script


SAYS = "echo vmtailor-lab starts; "


@pytest.mark.parametrize(
    ("script", "ending", "status"),
    [
        ("echo up >&2; echo vmtailor-lab ended: 0", Ending.EXITED, 0),
        ("echo up >&2; echo vmtailor-lab said: no memory; echo vmtailor-lab ended: 134", Ending.DIED, 134),
        ("echo up >&2; exit 3", Ending.DIED, 3),
        ("echo up >&2; sleep 60", Ending.DEADLINE, None),
        ("echo 'Kernel panic - not syncing: x' >&2; echo vmtailor-lab ended: 0", Ending.PANIC, 0),
    ],
)
def test_a_machine_ends_as_its_monitor_does(
    script: str, ending: Ending, status: int | None, started: list[str]
) -> None:
    started.append(SAYS + script)
    with LabMonitor(monitors.named("qemu")).run(replace(MACHINE, clock=Clock.WALL), Wants()) as running:
        end = running.run(2.0)
    assert (end.ending, end.returncode, end.monitor) == (ending, status, "QEMU in the lab")
    assert end.console_tail and end.stderr == ("no memory" if "memory" in script else "")


def test_a_monitor_that_ends_before_its_machine_spoke_did_not_start(started: list[str]) -> None:
    started.append(f"{SAYS}echo vmtailor-lab said: no such disk; echo vmtailor-lab ended: 1")
    with (
        pytest.raises(NotStarted, match="QEMU in the lab did not start") as caught,
        LabMonitor(monitors.named("qemu")).run(replace(MACHINE, clock=Clock.WALL), Wants()) as running,
    ):
        running.run(20.0)
    assert "no such disk" in caught.value.details


@pytest.mark.parametrize("script", ["echo vmtailor-lab lost: no KVM", "echo no KVM"])
def test_a_lab_that_cannot_start_a_monitor_says_why(script: str, started: list[str]) -> None:
    started.append(script)
    with (
        pytest.raises(NotStarted, match="QEMU did not start in the lab") as caught,
        LabMonitor(monitors.named("qemu")).run(replace(MACHINE, clock=Clock.WALL), Wants()),
    ):
        pytest.fail("it began")
    assert "no KVM" in caught.value.details and "make lab" in caught.value.hint


def test_the_time_of_a_machine_begins_with_its_monitor(started: list[str]) -> None:
    started.append(SAYS + "sleep 60")
    with LabMonitor(monitors.named("qemu")).run(replace(MACHINE, clock=Clock.WALL), Wants()) as running:
        assert running.elapsed_s < 5 and running.cpu_s is not None
        running._before_s = -7.0  # type: ignore[attr-defined]  # as if the lab had used them before
        assert running.cpu_s >= 7.0


def test_of_a_long_console_the_end_is_kept() -> None:
    with SerialLine() as line:
        kept = bytearray(bytes(1 << 20))
        os.write(line.guest_out, b"the end")
        lab_monitor.drain(line, kept)
    assert len(kept) == 1 << 20 and kept.endswith(b"the end")
