# SPDX-License-Identifier: Apache-2.0
"""The virtio line: QEMU's words for it, who has it, and when `run` takes it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes.fit_run_data import fit_run
from tests.unit.test_running import options

from vmtailor.base.files import records
from vmtailor.drivers.guest import guest_volume
from vmtailor.drivers.host import bundle_folder
from vmtailor.drivers.host.bundle_folder import seal
from vmtailor.drivers.monitors import monitors
from vmtailor.drivers.monitors.monitor import Wants
from vmtailor.drivers.qemu.qemu_command import Ends, command
from vmtailor.model.boots.workload import Run
from vmtailor.model.bundle import RECORD, RUN, Bundle
from vmtailor.model.machine import Accelerator, Clock, Disk, Machine, TalkLine
from vmtailor.pipeline import machine_run

SERIAL = Machine(
    board="microvm", memory_bytes=64 << 20, kernel="/k", words=("console=ttyS0",), disks=(Disk("/r"), Disk("/run")),
    network=True, clock=Clock.WALL,
)  # fmt: skip
VIRTIO = replace(SERIAL, line=TalkLine.VIRTIO)
INIT = b"\0virtio-line\0"


def test_the_port_is_behind_all_other_devices() -> None:
    before, after = command(SERIAL, Ends(console=None)), command(VIRTIO, Ends(console=9))
    device = ["-device", "virtio-serial-device,max_ports=2,bus=virtio-mmio-bus.3"]
    assert after[-4:] == [*device, "-device", "virtserialport,chardev=line,nr=1"]
    assert [word for word in before if "virtio" in word] == [word for word in after[:-4] if "virtio" in word]


def test_the_port_is_on_standard_streams_and_the_serial_line_only_speaks() -> None:
    words = command(VIRTIO, Ends(console=9))
    at = words.index("-add-fd")
    assert words[at : at + 8] == [
        "-add-fd", "fd=9,set=9", "-chardev", "file,id=serial,path=/dev/fdset/9,append=on", "-serial", "chardev:serial",
        "-chardev", "stdio,id=line,signal=off",
    ]  # fmt: skip
    assert words[words.index("-append") + 1] == "console=ttyS0"


def test_a_command_for_people_has_its_port_at_nobody() -> None:
    words = command(VIRTIO)
    assert "stdio,id=serial,signal=off" in words and "null,id=line" in words


def test_a_board_with_pci_places_it_itself() -> None:
    assert "virtio-serial-pci,max_ports=2" in command(replace(VIRTIO, board="q35"), Ends(console=9))


def test_older_records_have_the_serial_line() -> None:
    saved = records.to_bytes(SERIAL).replace(b',\n "line": "serial"', b"")
    assert b"line" not in saved and records.from_bytes(Machine, saved) == SERIAL


@pytest.mark.parametrize("name", ["firecracker", "libkrun", "cloud-hypervisor"])
def test_monitors_without_it_refuse_it(name: str) -> None:
    machine = replace(VIRTIO, monitor=name, accelerator=Accelerator.KVM)
    assert "virtio line" in monitors.of(machine).refusals(machine)


def test_it_has_no_second_serial_port_beside_it() -> None:
    refused = monitors.usual().refusals(VIRTIO, Wants(probe=True))
    assert refused == ("second serial port beside a virtio line",)
    assert monitors.usual().refusals(VIRTIO) == ()


def test_init_is_told_by_the_run_volume() -> None:
    assert b"\0virtio-line 1\0" in guest_volume.run_bytes(Run(virtio_line=True))
    assert b"virtio-line" not in guest_volume.run_bytes(Run())


@pytest.mark.parametrize(
    ("config", "init", "memory_mib", "least_mib", "line"),
    [
        ("CONFIG_VIRTIO_CONSOLE=y\n", INIT, 128, None, TalkLine.VIRTIO),
        ("CONFIG_VIRTIO_CONSOLE=y\n", b"older", 128, None, TalkLine.SERIAL),
        ("# CONFIG_VIRTIO_CONSOLE is not set\n", INIT, 128, None, TalkLine.SERIAL),
        ("CONFIG_VIRTIO_CONSOLE=m\n", INIT, 128, None, TalkLine.SERIAL),
        ("CONFIG_VIRTIO_CONSOLE=y\n", INIT, 127, None, TalkLine.SERIAL),  # nobody knows what the container needs
        ("CONFIG_VIRTIO_CONSOLE=y\n", INIT, 64, 54, TalkLine.VIRTIO),
        ("CONFIG_VIRTIO_CONSOLE=y\n", INIT, 64, 55, TalkLine.SERIAL),
    ],
)
def test_who_has_it_and_room_for_it_takes_it(
    tmp_path: Path, config: str, init: bytes, memory_mib: int, least_mib: int | None, line: TalkLine
) -> None:
    for name, data in (("config", config.encode()), ("init", init)):
        (tmp_path / name).write_bytes(data)
    given = options(tmp_path, "exit")
    if least_mib is not None:
        fitted = fit_run()
        records.save(
            replace(fitted, tailored=replace(fitted.tailored, min_memory_bytes=least_mib << 20)), tmp_path / RUN
        )
    seal(tmp_path, records.load(Bundle, tmp_path / RECORD))
    files = bundle_folder.load(given.bundle)
    assert machine_run._line(files, replace(SERIAL, memory_bytes=memory_mib << 20)) is line
