# SPDX-License-Identifier: Apache-2.0
"""Systems for another processor than the host's: told by their init, driven through a second serial port."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import pytest

from vmtailor.base.errors import UserInputError
from vmtailor.base.natives import SOURCES
from vmtailor.cli.boots import boot_machine
from vmtailor.drivers.qemu import qemu_command
from vmtailor.drivers.qemu.qemu_command import Ends
from vmtailor.model.architecture import Architecture, every, named
from vmtailor.model.machine import Accelerator, Clock, Machine
from vmtailor.pipeline.options import BootOptions
from vmtailor.pipeline.systems import exercise_boots

DRIVEN = [pytest.param(row, id=row.name) for row in every() if row.board_named(row.usual).second_port]
_PORT = re.compile(r"#define ARCH_SECOND_PORT makedev\(4, (\d+)\)")


def machine_of(row: Architecture, *words: str) -> Machine:
    return Machine(row.usual, 1 << 30, "/k", words, cpu_model=row.emulator.cpu_model, architecture=row.name)


def words_of(argv: list[str]) -> str:
    return argv[argv.index("-append") + 1]


@pytest.mark.parametrize(
    ("name", "machine", "bits", "little"),
    [
        ("x86_64", 62, 64, True), ("arm64", 183, 64, True), ("mips64el", 8, 64, True),
        ("", 3, 32, True), ("", 40, 32, True), ("", 8, 32, True), ("", 8, 64, False), ("", 183, 64, False),
        ("", 22, 64, False),
    ],
)  # fmt: skip
def test_a_system_is_of_the_processor_of_its_init(name: str, machine: int, bits: int, little: bool) -> None:
    """Programs of 32 bits and of the other byte order have machines that nothing is known of."""
    assert [row.name for row in every() if row.runs_whole(machine, bits, little)] == ([name] if name else [])


@pytest.mark.parametrize("row", DRIVEN)
def test_the_guests_programs_know_the_second_port_by_the_number_that_it_has(row: Architecture) -> None:
    """It is the first of its kind where the board's console is of another kind, or comes behind it; else the second."""
    found = _PORT.search((SOURCES / "arch" / row.name / "arch.h").read_text())
    console, beside = row.kernel.console, row.board_named(row.usual).port_console
    first = not console.startswith("ttyS") or (bool(beside) and beside != "ttyS0")
    assert found is not None and int(found[1]) == (64 if first else 65)


@pytest.mark.parametrize("row", DRIVEN)
def test_the_console_stays_on_the_boards_port(row: Architecture) -> None:
    kind, console = row.board_named(row.usual), row.kernel.console
    machine = machine_of(row, "root=/dev/vda", f"console={console},115200", f"console={console}", "console=tty0")
    alone = qemu_command.command(machine)
    assert words_of(alone).startswith(f"root=/dev/vda console={console},115200 console={console} console=tty0")
    beside = kind.port_console or console
    for name, ends in (("attendant", Ends(console=7)), ("probe", Ends(probe=7))):
        argv = qemu_command.command(machine, ends)
        assert words_of(argv).startswith(f"root=/dev/vda console={beside},115200 console={beside} console=tty0")
        port = ("-device", f"{kind.port_device},chardev={name}") if kind.port_device else ("-serial", f"chardev:{name}")
        assert port in list(itertools.pairwise(argv))


@pytest.mark.parametrize("row", DRIVEN)
def test_the_machine_is_of_the_systems_processor(row: Architecture) -> None:
    machine = boot_machine.machine_for(BootOptions(clock=Clock.INSTRUCTIONS, memory_bytes=512 << 20), row)
    assert (machine.architecture, machine.board, machine.cpu_model) == (row.name, row.usual, row.emulator.cpu_model)
    assert machine.cpus == 1 and "nokaslr" in machine.words and machine.kernel is None
    with pytest.raises(UserInputError, match=f"{re.escape(row.title)} has no machine 'none-such'"):
        boot_machine.machine_for(BootOptions(machine="none-such"), row)
    if not row.is_host:
        with pytest.raises(UserInputError, match="is emulated on this host"):
            boot_machine.machine_for(BootOptions(accelerator=Accelerator.KVM), row)


def test_nobody_drives_a_machine_with_one_serial_port(monkeypatch: pytest.MonkeyPatch) -> None:
    row = named("arm64")
    kind = replace(row.board_named(row.usual), second_port=False)
    monkeypatch.setattr(Machine, "hardware", property(lambda _: kind))
    with pytest.raises(UserInputError, match="the machine virt has one serial port"):
        exercise_boots.require_port(machine_of(row))


def test_loongsons_second_port_takes_the_first_name() -> None:
    kind = named("mips64el").board_named("loongson3-virt")
    assert (kind.port_device, kind.port_console) == ("pci-serial", "ttyS1")
