# SPDX-License-Identifier: Apache-2.0
"""QEMU's command as a function of a machine, and the driver with a fake QEMU that speaks QMP."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.asking import told

from vmtailor.base import process
from vmtailor.base.errors import GuestError, HostError, UserInputError
from vmtailor.drivers.qemu import qemu, qemu_command, qemu_program
from vmtailor.drivers.qemu.plugin import Plugin
from vmtailor.model.boots.ending import Ending
from vmtailor.model.machine import Accelerator, Clock, Disk, DiskMode, Machine, PublishedPort

FAKE = Path(__file__).parent.parent / "fakes" / "qemu-system"
PLAIN = Machine("microvm", 256 << 20, "/k/vmlinux", ("console=ttyS0", "quiet"))


def option(argv: list[str], name: str) -> str:
    return argv[argv.index(name) + 1]


def test_the_instruction_clock_fixes_everything_that_varies() -> None:
    argv = qemu_command.command(PLAIN)
    assert option(argv, "-icount") == "shift=0,sleep=off"
    assert option(qemu_command.command(replace(PLAIN, pace=3)), "-icount") == "shift=3,sleep=off"
    assert option(argv, "-rtc") == "base=2026-01-01T00:00:00,clock=vm"
    assert option(argv, "-seed") == "1"
    assert option(argv, "-accel") == "tcg"
    assert option(argv, "-machine") == "microvm,acpi=off"
    assert option(argv, "-m") == "262144K"
    assert option(argv, "-append") == "console=ttyS0 quiet"
    assert {"-nodefaults", "-no-user-config", "-no-reboot"} < set(argv)
    assert option(argv, "-nic") == "none"


def test_the_wall_clock_is_paced_under_emulation() -> None:
    argv = qemu_command.command(replace(PLAIN, clock=Clock.WALL))
    assert option(argv, "-icount") == "shift=auto"
    assert not {"-rtc", "-seed"} & set(argv)
    assert option(qemu_command.command(replace(PLAIN, clock=Clock.WALL, cpus=2)), "-icount") == "shift=auto"


def test_the_wall_clock_leaves_time_alone() -> None:
    argv = qemu_command.command(replace(PLAIN, clock=Clock.WALL, accelerator=Accelerator.KVM, cpus=4, cpu_model="host"))
    assert not {"-icount", "-rtc", "-seed"} & set(argv)
    assert option(argv, "-accel") == "kvm"
    assert option(argv, "-smp") == "4"


def test_disks_keep_their_order_and_their_commas() -> None:
    argv = qemu_command.command(replace(PLAIN, disks=(Disk("/a,b"), Disk("/c", mode=DiskMode.WRITTEN))))
    drives = [argv[i + 1] for i, word in enumerate(argv) if word == "-drive"]
    assert drives[0] == "if=none,id=disk0,file=/a,,b,format=raw,read-only=on"
    assert drives[1].endswith("read-only=off")
    devices = [argv[i + 1] for i, word in enumerate(argv) if word == "-device"]
    assert devices == [
        "virtio-blk-device,drive=disk0,bus=virtio-mmio-bus.7",
        "virtio-blk-device,drive=disk1,bus=virtio-mmio-bus.6,werror=report",
    ]


def test_the_network_lets_nothing_out_unless_asked() -> None:
    ports = (PublishedPort("127.0.0.1", 8080, 80),)
    argv = qemu_command.command(replace(PLAIN, board="q35", network=True, ports=ports))
    assert option(argv, "-netdev") == "user,id=net,ipv6=off,restrict=on,hostfwd=tcp:127.0.0.1:8080-:80"
    assert option(argv, "-device").startswith("virtio-net-pci,")
    # The guard opens it to the world; with the host's own servers, nothing is left to guard.
    world = replace(PLAIN, network=True, outbound=True)
    assert "restrict=on" in option(qemu_command.command(world), "-netdev")
    assert "restrict=off" in option(qemu_command.command(replace(world, host_loopback=True)), "-netdev")
    contradiction = replace(PLAIN, network=True, host_loopback=True)
    assert "restrict=on" in option(qemu_command.command(contradiction), "-netdev")


def test_what_cannot_be_had_together_is_refused() -> None:
    with pytest.raises(UserInputError, match="TCG only"):
        qemu_command.command(replace(PLAIN, accelerator=Accelerator.KVM))
    plugin = Plugin(Path("/l"), Path("/c"), Path("/o"))
    with pytest.raises(UserInputError, match="one CPU only"):
        qemu_command.command(replace(PLAIN, cpus=2), plugin=plugin)
    assert option(qemu_command.command(PLAIN, plugin=plugin), "-plugin") == "/l,config=/c,out=/o"


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1), st.integers(1, 4))
def test_no_path_breaks_out_of_its_option(path: str, count: int) -> None:
    argv = qemu_command.command(
        replace(PLAIN, disks=(Disk(path),) * count), plugin=Plugin(Path(path), Path(path), Path(path))
    )
    for word in argv:
        if word.startswith("if=none"):
            inner = word.split(",file=", 1)[1].removesuffix(",format=raw,read-only=on")
            assert inner.replace(",,", "\0").count(",") == 0
            assert inner.replace(",,", ",") == path


@pytest.mark.parametrize(
    ("version", "api"), [((7, 2), 1), ((8, 2), 1), ((9, 0), None), ((9, 1), None), ((9, 2), 4), ((10, 0), 4)]
)
def test_versions_know_their_plugin(version: tuple[int, int], api: int | None) -> None:
    assert qemu_program.plugin_api_of(version) == api


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    monkeypatch.setenv(qemu_program.BINARY_VARIABLE, str(FAKE))
    monkeypatch.setenv("SECRET_OF_THE_USER", "hidden")
    (tmp_path / "kernel").write_bytes(b"kernel")
    yield replace(PLAIN, kernel=str(tmp_path / "kernel"))


def fake(machine: Machine, what: str) -> Machine:
    return replace(machine, words=(f"fake={what}",))


@pytest.mark.lengthy
@pytest.mark.parametrize(
    ("what", "ending"),
    [("exit", Ending.EXITED), ("panic", Ending.PANIC), ("crash", Ending.DIED), ("hang", Ending.DEADLINE)],
)
def test_every_end_has_its_type(machine: Machine, what: str, ending: Ending) -> None:
    with qemu.start(fake(machine, what)) as running:
        end = running.run(1.0 if what == "hang" else 20)
    assert end.ending is ending
    assert "fake guest" in end.console_tail
    assert f"fake={what}" in end.command
    assert isinstance(end.error(), GuestError)
    assert not running.running


def test_a_qemu_that_aborts_early_is_the_guests_end_and_no_host_error(machine: Machine) -> None:
    with qemu.start(fake(machine, "abort")) as running:
        end = running.run(20)
    assert (end.ending, end.returncode) == (Ending.DIED, -6)


def test_a_panic_only_counts_on_the_kernels_own_console(machine: Machine) -> None:
    with qemu.start(fake(machine, "panic")) as running:
        assert running.wait(20, console="a program printed something").ending is Ending.EXITED
        assert running.wait(20, console="it said: Kernel panic - not syncing: x").ending is Ending.EXITED
        assert running.wait(20, console="[    0.123456] Kernel panic - not syncing: x").ending is Ending.PANIC


def test_the_serial_line_goes_both_ways(machine: Machine) -> None:
    heard = bytearray()
    with qemu.start(fake(machine, "echo")) as running:
        running.serial.send(b"to the guest")
        running.run(20, heard.extend)
    assert heard == b"fake guest\nto the guest"


def test_qemu_sees_next_to_nothing_of_our_environment(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "HOME", "SSH_AUTH_SOCK", "http_proxy"):
        monkeypatch.setenv(name, "mine")
    heard = bytearray()
    with qemu.start(fake(machine, "env")) as running:
        running.run(20, heard.extend)
    # The interpreter that plays QEMU may add variables of its own; none of ours gets through.
    assert "mine" not in json.loads(heard).values()


def test_qmp_commands_errors_and_events(machine: Machine) -> None:
    with qemu.start(fake(machine, "hang"), qmp=True) as running:
        assert running.qmp is not None
        assert running.qmp.ask("query-status")["status"] == "running"
        with pytest.raises(GuestError, match="has not been found"):
            running.qmp.ask("no-such-thing")
        running.qmp.ask("stop")
        assert told(running.qmp) == ["STOP"]
        assert running.qmp.heard() == []
        running.qmp.ask("quit")
        assert running.run(20).ending is Ending.EXITED
        with pytest.raises(GuestError, match="does not answer"):
            running.qmp.ask("query-status", timeout_s=2)
    assert "id=qmp" not in running.command  # what a person pastes starts without us


def test_a_qemu_that_does_not_start(machine: Machine) -> None:
    with pytest.raises(HostError, match="did not start"), qemu.start(fake(machine, "refuse")) as running:
        running.run(20)
    with pytest.raises(HostError), qemu.start(fake(machine, "refuse"), qmp=True):
        pass


def test_a_port_that_qemu_cannot_open_is_named_with_the_reason(machine: Machine) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        published = replace(fake(machine, "port"), network=True, ports=(PublishedPort("127.0.0.1", port, 80),))
        with pytest.raises(HostError, match=f":{port}/tcp is already in use"), qemu.start(published) as running:
            running.run(20)


@pytest.mark.attack
def test_a_network_that_cannot_be_guarded_is_not_opened(machine: Machine) -> None:
    outbound = replace(fake(machine, "env"), network=True, outbound=True)
    with pytest.raises(HostError, match="cannot guard"), qemu.start(outbound):
        pass


def test_what_a_person_pastes_has_the_guard(machine: Machine) -> None:
    published = replace(fake(machine, "exit"), network=True, ports=(PublishedPort("127.0.0.1", 8080, 80),))
    with qemu.start(published) as running:
        assert running.command.startswith("env LD_PRELOAD=/")
        assert " VMTAILOR_REACH=closed " in running.command
    with qemu.start(fake(machine, "exit")) as running:
        assert running.command.startswith(str(FAKE))


def test_nothing_is_left_running_when_the_caller_fails(machine: Machine) -> None:
    def interrupted() -> None:
        with qemu.start(fake(machine, "hang")) as running:
            assert running.serial.wait_readable(20)
            os.kill(os.getpid(), signal.SIGINT)
            running.run(20)

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not children()


def test_a_qemu_that_ignores_being_asked_is_killed(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process.kill_group, "__defaults__", (0.2,))
    with qemu.start(fake(machine, "stubborn")) as running:
        assert running.serial.wait_readable(20)
        started = time.monotonic()
    assert time.monotonic() - started < 10
    assert not children()


def test_a_missing_file_is_named_before_anything_starts(machine: Machine) -> None:
    with pytest.raises(UserInputError, match="/no/disk"), qemu.start(replace(machine, disks=(Disk("/no/disk"),))):
        pass


def children() -> list[str]:
    """Command lines of our child processes that run the fake."""
    found = []
    for path in Path("/proc/self/task").glob("*/children"):
        for pid in path.read_text().split():
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            if FAKE.name in command:
                found.append(command)
    return found
