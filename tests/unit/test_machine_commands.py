# SPDX-License-Identifier: Apache-2.0
"""The whole argument list of each kind of machine, word for word: figures that are exact to the instruction depend on
every one (tests/data/machine_commands.json)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from vmtailor.analysis.guests.machine_variants import USUAL, on_loopback
from vmtailor.drivers.qemu.plugin import Plugin
from vmtailor.drivers.qemu.qemu_command import Ends, command
from vmtailor.model.machine import Accelerator, Clock, Disk, DiskFormat, DiskMode, Machine, PublishedPort

EXPECTED = json.loads((Path(__file__).parent.parent / "data" / "machine_commands.json").read_text())
COUNTING = Plugin(Path("/n/plugin.so"), Path("/s/plugin.conf"), Path("/s/plugin.counts"))
HANDED_OVER = Ends(7, 9, {"/r/root.erofs": "/dev/fdset/11"}, ((11, 11), (12, 12)))
MICROVM = Machine(
    "microvm", 256 << 20, "/k/vmlinux", ("root=/dev/vda", "quiet"),
    disks=(Disk("/r/root.erofs"), Disk("/s/run", mode=DiskMode.WRITTEN)),
)  # fmt: skip
PORTS = (PublishedPort("127.0.0.1", 8080, 80), PublishedPort("0.0.0.0", 53, 53, "udp"))
WALL = replace(MICROVM, network=True, clock=Clock.WALL, ports=PORTS)
Q35 = replace(MICROVM, board="q35", network=True, ports=PORTS)
DIRECT = replace(
    USUAL,
    kernel="/k/vmlinuz", initrd="/k/initrd", words=("root=/dev/vda", "console=ttyS0"),
    disks=(Disk("/d/a,b.qcow2", DiskFormat.QCOW2, DiskMode.OVERLAID), Disk("/d/more", mode=DiskMode.OVERLAID)),
    ports=on_loopback([22, 80]),
)  # fmt: skip
LOADER = replace(
    USUAL,
    disks=(Disk("/d/disk.qcow2", DiskFormat.QCOW2, DiskMode.OVERLAID),), cpus=2, extras=("-device", "usb-tablet"),
)  # fmt: skip
COUNTED = replace(DIRECT, clock=Clock.INSTRUCTIONS, entropy=False, words=(*DIRECT.words, "nokaslr"))
COMMANDS = {
    "container on microvm, instruction clock": command(MICROVM),
    "container on microvm, counted, handed over": command(MICROVM, HANDED_OVER, plugin=COUNTING),
    "container on microvm, no sandbox": command(MICROVM, program="/q/qemu", sandbox=False),
    "baseline on microvm: initial RAM disk and ACPI": command(replace(MICROVM, initrd="/k/initrd", acpi=True)),
    "container on microvm, ports, wall clock": command(WALL),
    "container on microvm, outbound": command(replace(WALL, outbound=True)),
    "container on microvm, outbound and the host's loopback": command(
        replace(WALL, outbound=True, host_loopback=True)
    ),
    "container on q35": command(Q35),
    "baseline on q35, initial RAM disk": command(replace(Q35, initrd="/k/initrd", acpi=True, network=False)),
    "container on microvm under KVM": command(
        replace(WALL, accelerator=Accelerator.KVM, cpu_model="host", cpus=2)
    ),
    "own init on q35, loader of its own": command(LOADER),
    "own init on q35, loader, monitor and second serial port": command(LOADER, Ends(7, 9)),
    "own init on q35, kernel and initial RAM disk, ports": command(DIRECT),
    "own init on q35, counted": command(COUNTED, Ends(7), plugin=COUNTING),
    "own init on q35, no network": command(replace(DIRECT, network=False, ports=())),
    "own init on microvm, ports": command(replace(DIRECT, board="microvm")),
    "own init on microvm, counted": command(replace(COUNTED, board="microvm")),
    "own init on q35 under KVM": command(replace(DIRECT, accelerator=Accelerator.KVM, cpu_model="host")),
}  # fmt: skip


def test_all_are_held() -> None:
    assert set(COMMANDS) == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_not_a_word_has_changed(name: str) -> None:
    assert COMMANDS[name] == EXPECTED[name]


@pytest.mark.parametrize(
    ("board", "acpi", "accelerator", "content", "without"),
    [
        ("microvm", False, Accelerator.KVM, b"\x7fELF\x003MPTABLE: no processors registered!\n", True),
        ("microvm", False, Accelerator.KVM, b"\x7fELF MPTABLE", False),
        ("microvm", False, Accelerator.TCG, b"\x7fELF\x003MPTABLE: no processors registered!\n", False),
        ("microvm", True, Accelerator.KVM, b"\x7fELF\x003MPTABLE: no processors registered!\n", False),
        ("q35", False, Accelerator.KVM, b"\x7fELF\x003MPTABLE: no processors registered!\n", False),
    ],
)
def test_a_board_has_no_pic_where_the_kernel_finds_its_other_controller_under_kvm(
    tmp_path: Path, board: str, acpi: bool, accelerator: Accelerator, content: bytes, without: bool
) -> None:
    (tmp_path / "vmlinux").write_bytes(content)
    kernel = str(tmp_path / "vmlinux")
    asked = replace(MICROVM, board=board, acpi=acpi, accelerator=accelerator, clock=Clock.WALL, kernel=kernel)
    board_options = command(asked)[2].split(",")
    assert ("pic=off" in board_options) is without
