# SPDX-License-Identifier: Apache-2.0
"""The QEMU driver with real QEMU and a kernel of a hundred bytes (tests/guests/kernel.S)."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from tests.fakes.asking import told

from vmtailor.analysis.changes import trial_hardware
from vmtailor.base.errors import HostError
from vmtailor.drivers.confinement import confinement
from vmtailor.drivers.confinement.confinement import Root
from vmtailor.drivers.monitors.monitor import KvmState
from vmtailor.drivers.qemu import kvm, qemu
from vmtailor.model.architecture import presumed
from vmtailor.model.boots.ending import Ending
from vmtailor.model.guest_mounts import MountKind, Share
from vmtailor.model.machine import Clock, Disk, DiskMode, Machine, PublishedPort
from vmtailor.pipeline import run_ports

KINDS = presumed().board_names

pytestmark = [pytest.mark.contract, pytest.mark.usefixtures("program")]


def machine(kernel: Path, word: str, kind: str = "microvm", **more: object) -> Machine:
    return Machine(kind, 32 << 20, str(kernel), (word,), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("clock", Clock)
def test_a_guest_that_ends_by_itself(kernel: Path, kind: str, clock: Clock) -> None:
    with qemu.start(machine(kernel, "x", kind, clock=clock)) as running:
        end = running.run(30)
    assert end.ending is Ending.EXITED
    assert "the end" in end.console_tail
    assert end.returncode == 0
    assert end.stderr == ""


@pytest.mark.parametrize("kind", KINDS)
def test_folders_that_qemu_serves_itself_are_there(kernel: Path, kind: str, tmp_path: Path) -> None:
    """QEMU does not start where it cannot see what it is to serve."""
    if confinement.available().root is Root.SHARED:
        pytest.skip("this host has no namespaces for it")
    (tmp_path / "file").touch()
    shares = (
        Share("vtfs0", str(tmp_path), by=MountKind.FOLDER_9P),
        Share("vtfs1", str(tmp_path / "file"), read_only=True, single_file=True, by=MountKind.FOLDER_9P),
    )
    with qemu.start(machine(kernel, "x", kind, clock=Clock.WALL), shares=shares) as running:
        end = running.run(30)
    assert (end.ending, end.stderr) == (Ending.EXITED, "")


def test_the_guard_opens_the_ports_of_ipv6(kernel: Path) -> None:
    (port,) = run_ports.chosen(run_ports.parse_ports("[::1]::80"))
    with socket.socket(socket.AF_INET6) as probe, pytest.raises(ConnectionRefusedError):
        probe.connect(("::1", port.host_port))
    made = machine(kernel, "h", network=True, ports=(port,), network6="fd00:1::5/64", clock=Clock.WALL)
    with qemu.start(made, qmp=True), socket.create_connection(("::1", port.host_port), 20):
        pass


def test_what_the_host_lets_qemu_do_is_told_by_its_threads(kernel: Path) -> None:
    with qemu.start(machine(kernel, "h")) as running:
        first = running.held_up_s
        running.run(1.0)
        assert running.cpu_s is not None and running.cpu_s > 0
        assert running.held_up_s >= first >= 0.0
        running.wants_to_run  # noqa: B018 it is asked of a machine that runs; what it says is the moment's
        running.stop()
        assert running.held_up_s == 0.0 and not running.wants_to_run


def test_a_panic_is_an_end_of_its_own(kernel: Path) -> None:
    with qemu.start(machine(kernel, "p")) as running:
        end = running.run(30)
    assert end.ending is Ending.PANIC
    assert "as told" in end.error().details
    assert "-kernel" in end.error().details


def test_a_guest_that_hangs_is_ended_at_the_deadline(kernel: Path) -> None:
    with qemu.start(machine(kernel, "h")) as running:
        end = running.run(5.0)
        assert running.running
    assert not running.running
    assert end.ending is Ending.DEADLINE
    assert "hanging" in end.console_tail
    assert 5.0 <= end.seconds < 30


def test_the_serial_line_carries_both_ways(kernel: Path) -> None:
    heard = bytearray()
    with qemu.start(machine(kernel, "e")) as running:
        running.serial.send(b"hello there.")
        end = running.run(30, heard.extend)
    assert end.ending is Ending.EXITED
    assert heard.endswith(b"hello there.")


def test_a_guest_may_be_ahead_of_its_reader(kernel: Path) -> None:
    with qemu.start(machine(kernel, "l")) as running:
        assert running.wait(30).ending is Ending.EXITED  # nobody read, and it could end
        said = bytearray()
        while running.serial.wait_readable(20) and (data := running.serial.recv(1 << 20)):
            said += data
        assert said.count(b"l") >= 100_000


def test_qmp_answers_and_tells_events(kernel: Path) -> None:
    with qemu.start(machine(kernel, "h"), qmp=True) as running:
        assert running.qmp is not None
        assert running.qmp.ask("query-status")["status"] == "running"
        running.qmp.ask("stop")
        assert "STOP" in told(running.qmp)
        running.qmp.ask("quit")
        assert running.wait(20).ending is Ending.EXITED


def test_devices_of_every_kind_are_accepted(kernel: Path, tmp_path: Path) -> None:
    disks = tuple(
        Disk(str(tmp_path / f"disk,{i}"), mode=DiskMode.WRITTEN if i == 3 else DiskMode.READ_ONLY) for i in range(4)
    )
    for disk in disks:
        Path(disk.path).write_bytes(bytes(1 << 20))
    for kind in KINDS:
        with qemu.start(machine(kernel, "x", kind, disks=disks, network=True, acpi=True)) as running:
            assert running.run(30).ending is Ending.EXITED


@pytest.mark.parametrize("name", trial_hardware.known())
@pytest.mark.parametrize("clock", Clock)
def test_hardware_of_trials_is_accepted_and_the_serial_line_still_speaks(kernel: Path, name: str, clock: Clock) -> None:
    for board in set(trial_hardware.known()[name].boards) & set(KINDS):
        given = trial_hardware.given(machine(kernel, "x", board, clock=clock), name)
        with qemu.start(given) as running:
            end = running.run(30)
        assert (end.ending, end.stderr) == (Ending.EXITED, ""), name
        assert "the end" in end.console_tail, name


def test_a_port_in_use_is_said_in_one_sentence(kernel: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = PublishedPort("127.0.0.1", taken.getsockname()[1], 80)
        with (
            pytest.raises(HostError, match="already in use"),
            qemu.start(machine(kernel, "x", network=True, ports=(port,))) as running,
        ):
            running.run(30)


def test_qemus_refusal_is_reported_with_its_words(kernel: Path) -> None:
    with (
        pytest.raises(HostError, match="did not start") as caught,
        qemu.start(machine(kernel, "x", cpu_model="no-such-cpu")) as running,
    ):
        running.run(30)
    assert "no-such-cpu" in caught.value.details


def test_the_kvm_guest_gets_to_its_end_under_tcg() -> None:
    verdict = kvm.kvm_works(30, accelerator="tcg")
    assert verdict.works, verdict.said


def test_kvm_gets_a_verdict_in_time() -> None:
    verdict = kvm.kvm_works(5)
    assert verdict.seconds < 30
    assert verdict.works or verdict.reason
    assert verdict.works == (verdict.state is KvmState.WORKS)
