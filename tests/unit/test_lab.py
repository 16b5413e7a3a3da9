# SPDX-License-Identifier: Apache-2.0
"""Monitors in the lab: what they are told, what they refuse, and what the lab says of them. Nothing is started."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import HostError, UserInputError
from vmtailor.base.files import records
from vmtailor.drivers.lab import lab_monitor
from vmtailor.drivers.lab.lab_monitor import LabMonitor, read_console
from vmtailor.drivers.monitors import lab_folder, monitors
from vmtailor.drivers.monitors.lab_folder import Lab
from vmtailor.model import option_values
from vmtailor.model.checks import State
from vmtailor.model.machine import Clock, Disk, DiskMode, Machine, PublishedPort
from vmtailor.pipeline import monitor_choice

MACHINE = Machine(
    board="microvm", memory_bytes=256 << 20, kernel="/b/vmlinux", words=("root=/dev/vda", "quiet"),
    disks=(Disk("/b/root"), Disk("/s/run", mode=DiskMode.WRITTEN)), monitor="lab/qemu", architecture="x86_64",
)  # fmt: skip
HERE = Lab(version="1", architecture="x86_64", kernel="6.12", monitors={"qemu": "7.2"}, digest="d")
#: What a lab says that started a monitor, among lines of its kernel.
STARTED = "[    0.1] x\r\nvmtailor-lab starts\r\n"


def the_lab(store: Store, lab: Lab = HERE, *, without: str = "") -> Path:
    place = store.folder("lab")
    for name in ("disk.raw", "kernel", "initrd"):
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
        ({"architecture": "arm64", "board": "virt"}, "the lab is for"),
        ({"outbound": True, "network": True}, "way out to the world"),
        ({"disks": (Disk("/d"),) * 6}, "room for 6 disks"),
    ],
)
def test_what_the_lab_cannot_give_is_refused_by_name(changed: dict[str, object], refused: str) -> None:
    machine = replace(MACHINE, **changed)  # type: ignore[arg-type]  # fields of several types
    with pytest.raises(UserInputError, match=refused):
        monitors.of(machine).require(machine)


def test_a_machine_in_the_lab_runs_on_both_clocks() -> None:
    for clock in Clock:
        machine = replace(MACHINE, clock=clock)
        monitors.of(machine).require(machine)


def test_a_program_of_the_users_takes_the_labs_place() -> None:
    found = LabMonitor(monitors.named("qemu"), Path("/my/qemu"))
    assert found.command(MACHINE)[0] == "/mnt/program"


def test_without_a_lab_it_is_said(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(HostError, match="there is no lab"):
        lab_folder.load(store)
    assert lab_folder.check(store).state is State.MISSING
    the_lab(store)
    found = lab_folder.check(store)
    assert found.state is State.OK and "qemu 7.2" in found.found


def test_a_lab_of_another_version_is_not_used(tmp_path: Path) -> None:
    the_lab(Store(tmp_path), replace(HERE, version="0"))
    with pytest.raises(HostError, match="of version '0', and '1'") as caught:
        lab_folder.load(Store(tmp_path))
    assert "make lab" in (caught.value.hint or "")


@pytest.mark.parametrize("without", ["disk.raw", "kernel", "initrd"])
def test_a_lab_that_lacks_a_file_is_not_used(tmp_path: Path, without: str) -> None:
    the_lab(Store(tmp_path), without=without)
    with pytest.raises(HostError, match=f"no {without}"):
        lab_folder.load(Store(tmp_path))


def test_a_damaged_record_is_not_used(tmp_path: Path) -> None:
    (the_lab(Store(tmp_path)) / lab_folder.RECORD).write_bytes(b"{")
    with pytest.raises(HostError, match="damaged"):
        lab_folder.load(Store(tmp_path))


def test_the_description_and_the_program_have_one_version() -> None:
    text = (Path(__file__).parents[2] / "benchmarks" / "lab" / "system.toml").read_text()
    assert f'path = "/etc/vmtailor-lab"\ncontent = "{lab_folder.VERSION}\\n"' in text


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


def test_without_kvm_here_the_lab_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    found = monitor_choice.choose("qemu", "x86_64", Clock.INSTRUCTIONS, lab=True, programs={})
    assert (found.monitor, found.clock) == ("lab/qemu", Clock.INSTRUCTIONS) and found.words == "QEMU in the lab"


def test_an_unknown_monitor_is_named() -> None:
    with pytest.raises(UserInputError, match="no monitor 'xen'"):
        monitor_choice.choose("xen", "x86_64", Clock.WALL, lab=True, programs={})
