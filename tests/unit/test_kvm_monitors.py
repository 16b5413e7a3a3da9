# SPDX-License-Identifier: Apache-2.0
"""Firecracker, libkrun and Cloud Hypervisor: a machine as a command and files, what each cannot give, and how a program
in their place is started, ends, hangs and fails."""

from __future__ import annotations

import json
import os
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from vmtailor.base import natives
from vmtailor.base.errors import HostError, NotStarted, UserInputError
from vmtailor.drivers.monitors import kvm_guest, kvm_monitor, monitors
from vmtailor.drivers.monitors.monitor import KvmState, StartPlace, Wants
from vmtailor.model.boots.ending import Ending
from vmtailor.model.checks import Need, State
from vmtailor.model.machine import Accelerator, Clock, Disk, DiskFormat, DiskMode, Machine, PublishedPort

NAMES = ("firecracker", "libkrun", "cloud-hypervisor")
MACHINE = Machine(
    board="microvm", memory_bytes=(64 << 20) + 4096, kernel="/b/vmlinux", architecture="x86_64",
    words=("root=/dev/vda", "ro", "console=ttyS0", "quiet"),
    disks=(Disk("/b/root"), Disk("/b/run", mode=DiskMode.WRITTEN), Disk("/b/tools")), clock=Clock.WALL,
    accelerator=Accelerator.KVM, cpu_model="host", cpus=2,
)  # fmt: skip
PLACE = StartPlace("/mnt", {"/b/vmlinux": "/mnt/kernel", "/b/root": "/dev/vdc", "/b/run": "/dev/vdd"}, tap="tap0")


def of(name: str, machine: Machine = MACHINE) -> Machine:
    found = replace(machine, monitor=name)
    return replace(found, board="q35", acpi=True) if name == "cloud-hypervisor" else found


def test_firecracker_is_told_by_a_file() -> None:
    orders = monitors.named("firecracker").orders(of("firecracker"), PLACE)
    assert orders.argv[:4] == ("firecracker", "--no-api", "--config-file", "/mnt/config.json")
    assert "--no-seccomp" not in orders.argv
    # Standard output is the serial line, and its log no part of it.
    assert orders.argv[4:6] == ("--log-path", "monitor.log")
    assert json.loads(orders.files["config.json"]) == {
        "boot-source": {"kernel_image_path": "/mnt/kernel", "boot_args": "root=/dev/vda ro console=ttyS0 quiet"},
        "machine-config": {"vcpu_count": 2, "mem_size_mib": 65},
        "drives": [
            {"drive_id": "disk0", "path_on_host": "/dev/vdc", "is_root_device": False, "is_read_only": True},
            {"drive_id": "disk1", "path_on_host": "/dev/vdd", "is_root_device": False, "is_read_only": False},
            {"drive_id": "disk2", "path_on_host": "/b/tools", "is_root_device": False, "is_read_only": True},
        ],
    }


def test_firecracker_has_a_network_and_entropy_where_they_are_asked_for() -> None:
    asked = replace(of("firecracker"), network=True, entropy=True)
    told = json.loads(monitors.of(asked).orders(asked, PLACE).files["config.json"])
    assert told["network-interfaces"] == [
        {"iface_id": "eth0", "host_dev_name": "tap0", "guest_mac": "52:54:00:12:34:56"}
    ]
    assert told["entropy"] == {}


def test_libkrun_is_told_by_words() -> None:
    asked = replace(of("libkrun"), network=True)
    orders = monitors.of(asked).orders(asked, PLACE)
    assert orders.files == {}
    assert orders.argv == (
        "krun-start", "cpus", "2", "memory", "65", "format", "1", "kernel", "/mnt/kernel",
        "words", "root=/dev/vda ro console=ttyS0 quiet",
        "disk", "/dev/vdc", "written", "/dev/vdd", "disk", "/b/tools", "tap", "tap0", "52:54:00:12:34:56",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("content", "without"),
    [(b"\x7fELF\0" + b"3MPTABLE: no processors registered!\n", True), (b"\x7fELF MPTABLE", False), (b"", False)],
)
def test_libkrun_has_no_pic_where_the_kernel_finds_its_other_controller(
    tmp_path: Path, content: bytes, without: bool
) -> None:
    (tmp_path / "vmlinux").write_bytes(content)
    asked = replace(of("libkrun"), kernel=str(tmp_path / "vmlinux"))
    assert (monitors.of(asked).orders(asked, PLACE).argv[-2:] == ("without", "pic")) is without


def test_cloud_hypervisor_is_told_by_options() -> None:
    asked = replace(of("cloud-hypervisor"), network=True)
    orders = monitors.of(asked).orders(asked, PLACE)
    assert orders.argv == (
        "cloud-hypervisor", "--cpus", "boot=2", "--memory", "size=65540K", "--kernel", "/mnt/kernel",
        "--cmdline", "root=/dev/vda ro console=ttyS0 quiet", "--console", "off", "--serial", "tty",
        "--disk", "path=/dev/vdc,readonly=on", "path=/dev/vdd", "path=/b/tools,readonly=on",
        "--net", "tap=tap0,mac=52:54:00:12:34:56",
    )  # fmt: skip


def test_a_path_is_no_option_of_cloud_hypervisor() -> None:
    comma = replace(of("cloud-hypervisor"), disks=(Disk("/b/a,readonly=off"),))
    assert 'path="/b/a,readonly=off",readonly=on' in monitors.of(comma).orders(comma, PLACE).argv
    for path in ('/b/"a', "/b/[a", "/b/a]"):
        asked = replace(comma, disks=(Disk(path),))
        with pytest.raises(UserInputError, match="cannot be told the path"):
            monitors.of(asked).orders(asked, PLACE)


@pytest.mark.parametrize(
    ("name", "console", "extra"), [("firecracker", "ttyS0", ()), ("libkrun", "ttyAMA0", ("format", "0"))]
)
def test_on_arm64_the_serial_line_is_what_the_monitor_has(name: str, console: str, extra: tuple[str, ...]) -> None:
    asked = replace(of(name), architecture="arm64", board="virt", words=("console=ttyAMA0,115200", "quiet"))
    orders = monitors.of(asked).orders(asked, PLACE)
    everything = " ".join(orders.argv) + str(orders.files)
    assert f"console={console},115200 quiet" in everything and " ".join(extra) in everything


def test_each_names_what_it_cannot_give() -> None:
    asked = replace(
        MACHINE, board="q35", kernel=None, initrd="/i", firmware="seabios", cpus=256, cpu_model="qemu64", outbound=True,
        disks=(Disk("/d", DiskFormat.QCOW2, DiskMode.OVERLAID),), ports=(PublishedPort("127.0.0.1", 53, 53, "udp"),),
        clock=Clock.INSTRUCTIONS, accelerator=Accelerator.TCG, extras=("-S",), network=True, entropy=True,
    )  # fmt: skip
    usual = (
        "q35, whose devices are on pci", "accelerator tcg", "clock of instructions", "256 CPUs", "CPU 'qemu64'",
        "disk in qcow2", "overlaid disk", "published udp port", "firmware that starts a disk's own loader",
        "choice of firmware", "initial RAM disk", "way out to the world", "words of its own", "second serial port",
    )  # fmt: skip
    for name in ("firecracker", "libkrun"):
        assert monitors.named(name).refusals(asked, Wants(probe=True)) == usual
    others = monitors.named("cloud-hypervisor").refusals(replace(asked, architecture="x86_64"), Wants(probe=True))
    assert others == usual[1:]
    bundle = monitors.named("cloud-hypervisor").refusals(MACHINE)
    assert bundle == ("microvm, whose devices are on mmio",)
    assert monitors.named("firecracker").refusals(replace(MACHINE, acpi=True)) == ("ACPI",)
    foreign = replace(MACHINE, architecture="arm64", board="virt")
    assert monitors.named("cloud-hypervisor").refusals(foreign)[0] == "machines for arm64"


@pytest.mark.parametrize("name", NAMES)
def test_orders_are_refused_as_machines_are(name: str) -> None:
    one = monitors.named(name)
    with pytest.raises(UserInputError, match="it has no initial RAM disk"):
        one.orders(replace(of(name), initrd="/i"), PLACE)
    with pytest.raises(UserInputError, match="has no network on this host") as caught:
        one.orders(replace(of(name), network=True), StartPlace("/mnt"))
    assert "--lab" in caught.value.hint


@pytest.mark.parametrize("name", NAMES)
def test_what_is_shown_has_all_of_it(name: str) -> None:
    shown = " ".join(monitors.named(name).command(replace(of(name), network=True)))
    assert "/b/vmlinux" in shown and "/b/tools" in shown and "console=ttyS0" in shown and "config.json" not in shown


# --- a program in the monitor's place


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    for name in ("kernel", "root", "kvm"):
        (tmp_path / name).write_bytes(b"x" * 512)
    monkeypatch.setattr(kvm_monitor, "KVM_DEVICE", tmp_path / "kvm")
    return replace(
        MACHINE, monitor="firecracker", kernel=str(tmp_path / "kernel"), disks=(Disk(str(tmp_path / "root")),)
    )


def played(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a shell script in Firecracker's place."""
    place = folder / "bin"
    place.mkdir(exist_ok=True)
    (place / "firecracker").write_text(f"#!/bin/sh\n{script}\n")
    (place / "firecracker").chmod(0o755)
    monkeypatch.setenv("PATH", str(place), prepend=os.pathsep)


def test_a_machine_prints_and_ends(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played(
        tmp_path, monkeypatch, 'cat "$3"; read line; echo "heard $line"; echo a warning > monitor.log; env >&2; umask'
    )
    monkeypatch.setenv("SECRET", "x")
    with monitors.of(machine).start(machine) as running:
        running.serial.send(b"you\n")
        end = running.run(20.0)
    assert end.ending is Ending.EXITED and end.monitor == "Firecracker" and end.returncode == 0
    assert f'"kernel_image_path": "{tmp_path}/kernel"' in end.console_tail and "heard you" in end.console_tail
    assert end.console_tail.rstrip().endswith("0077")
    assert end.stderr.startswith("a warning\n") and "SECRET" not in end.stderr
    assert end.command.startswith("firecracker --no-api --config-file")


def test_a_machine_that_hangs_is_ended(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played(tmp_path, monkeypatch, "pwd; sleep 600 & sleep 600")
    with monitors.of(machine).start(machine) as running:
        end = running.run(1.0)
        assert running.running
    assert end.ending is Ending.DEADLINE and not running.running
    assert not Path(end.console_tail.strip()).exists()  # the folder that it was started in


def test_a_monitor_that_fails_says_why(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played(tmp_path, monkeypatch, "echo 'Error: \033[31mInvalid elf' >&2; exit 1")
    with (
        pytest.raises(NotStarted, match=r"Firecracker did not start: Error: .*Invalid elf") as caught,
        monitors.of(machine).start(machine) as running,
    ):
        running.run(20.0)
    assert "\033" not in caught.value.message


def test_a_program_of_another_architecture(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played(tmp_path, monkeypatch, "")
    (tmp_path / "bin" / "firecracker").write_bytes(b"\x7fELF\2\1\1" + bytes(9) + b"\2\0\xb7\0" + bytes(100))
    one = monitors.of(machine)
    with pytest.raises(HostError, match="cannot be started: "), one.start(machine):
        pass
    with pytest.raises(HostError, match="cannot be started: "):
        one.version("x86_64")


def test_nothing_starts_that_this_host_has_not(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played(tmp_path, monkeypatch, "touch started")
    one = monitors.of(machine)
    for asked, error, words in (
        (replace(machine, network=True), UserInputError, "Firecracker has no network on this host"),
        (replace(machine, kernel=str(tmp_path / "gone")), UserInputError, "gone does not exist"),
        (replace(machine, initrd="/i"), UserInputError, "it has no initial RAM disk"),
    ):
        with pytest.raises(error, match=words), one.start(asked):
            pass
    monkeypatch.setattr(kvm_monitor, "KVM_DEVICE", tmp_path / "none")
    with pytest.raises(HostError, match="under KVM alone: there is no") as caught, one.start(machine):
        pass
    assert "--lab" in caught.value.hint
    monkeypatch.setattr(kvm_monitor, "KVM_DEVICE", tmp_path / "kvm")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    with pytest.raises(HostError, match="the program 'firecracker' is not installed"), one.start(machine):
        pass


def test_the_version_is_what_the_program_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = monitors.named("firecracker")
    played(tmp_path, monkeypatch, "[ $1 = --version ] && echo 'Firecracker v1.17.0-dev'; echo")
    assert one.version("x86_64") == "1.17.0-dev"
    assert one.identity("x86_64", natives.Natives(tmp_path)) == (tmp_path / "bin" / "firecracker",)
    (check,) = one.checks()
    assert (check.name, check.state, check.found) == ("Firecracker", State.OK, "1.17.0-dev")
    for script in ("echo what", "exit 3", "echo 1.2; head -c 100000 /dev/zero"):
        played(tmp_path, monkeypatch, script)
        with pytest.raises(HostError, match="Firecracker does not say its version"):
            one.version("x86_64")


@pytest.mark.parametrize("name", ["firecracker", "cloud-hypervisor"])
def test_a_program_that_is_not_there_is_said_to_be_absent(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kvm").touch()
    monkeypatch.setattr(kvm_monitor, "KVM_DEVICE", tmp_path / "kvm")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    one = monitors.named(name)
    with pytest.raises(HostError, match="is not installed"):
        one.version("x86_64")
    (check,) = one.checks()
    assert (check.state, check.need, check.runs) == (State.LIMITED, Need.OPTIONAL, False)
    assert "is not installed" in check.found and "release on the PATH" in check.fix
    verdict = one.kvm()
    assert verdict.state is KvmState.FAILS and "is not installed" in verdict.reason


def test_the_version_of_libkrun_is_in_the_name_of_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, library = monitors.named("libkrun"), tmp_path / "libkrun.so.1.19.7"
    library.touch()
    program = tmp_path / "krun-start"
    monkeypatch.setattr(natives, "locate", lambda: natives.Natives(tmp_path))
    program.write_text(f"#!/bin/sh\necho {library}\n")
    program.chmod(0o755)
    assert one.version("x86_64") == "1.19.7"
    assert one.identity("x86_64", natives.Natives(tmp_path)) == (program, library)
    program.write_text("#!/bin/sh\necho 'krun-start: libkrun is not there' >&2\nexit 71\n")
    with pytest.raises(HostError, match=r"libkrun\.so\.1 is not installed") as caught:
        one.version("x86_64")
    assert "libkrun is not there" in caught.value.details and "build_libkrun.py" in caught.value.hint


# --- KVM


@pytest.mark.parametrize(
    ("script", "state"),
    [
        ("printf 'VTKVM ok\\n'; sleep 60", KvmState.WORKS),
        ("printf 'VTKVM ok\\n'", KvmState.WORKS),
        ("echo no >&2; exit 1", KvmState.FAILS),
        ("printf VTKVM", KvmState.FAILS),
        ("sleep 60", KvmState.HANGS),
    ],
)
def test_kvm_is_tried_with_a_guest(
    script: str, state: KvmState, machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(kvm_monitor, "_TRIAL_S", 1.0)
    played(tmp_path, monkeypatch, script)
    verdict = monitors.of(machine).kvm()
    assert verdict.state is state and bool(verdict.reason) is not verdict.works


def test_kvm_is_not_tried_where_it_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kvm_monitor, "KVM_DEVICE", tmp_path / "none")
    assert monitors.named("libkrun").kvm().state is KvmState.ABSENT
    monkeypatch.setattr(kvm_monitor, "KVM_DEVICE", tmp_path)
    assert monitors.named("libkrun").kvm().state is KvmState.FORBIDDEN
    monkeypatch.setattr(kvm_monitor, "_closed", lambda: None)
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert "no guest that would try it" in monitors.named("libkrun").kvm().reason


def test_the_guest_is_a_kernel_with_both_entries() -> None:
    elf = kvm_guest.elf()
    assert elf[:4] == b"\x7fELF" and len(elf) < 512
    (entry,) = struct.unpack_from("<Q", elf, 24)
    loaded = struct.unpack_from("<IIQQQQQQ", elf, 64)
    noted = struct.unpack_from("<IIQQQQQQ", elf, 64 + 56)
    assert loaded[0] == 1 and loaded[5] == loaded[6] == len(elf)
    assert struct.unpack_from("<III4sI", elf, noted[2]) == (4, 4, 18, b"Xen\0", entry)
    assert elf[entry - loaded[3]] == 0xFC and elf.index(kvm_guest.SAID) == entry - loaded[3] + 28
