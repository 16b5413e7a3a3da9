# SPDX-License-Identifier: Apache-2.0
"""The rows of other processors, held against QEMU and the cross compilers: machines that are made, programs that their
kernels run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from vmtailor.base import natives
from vmtailor.base.files import elf
from vmtailor.base.process import run
from vmtailor.drivers.qemu import qemu_command
from vmtailor.model.architecture import Architecture, Board, Packing, every
from vmtailor.model.machine import Machine, TalkLine

pytestmark = pytest.mark.contract

OTHERS = [row for row in every() if not row.is_host]
MACHINES = [pytest.param(row, one, id=f"{row.name}-{one.name}") for row in OTHERS for one in row.board]


def require(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not here")


@pytest.mark.parametrize(("row", "kind"), MACHINES)
def test_qemu_makes_the_machine_as_the_row_has_it(row: Architecture, kind: Board, tmp_path: Path) -> None:
    """CPU model, memory, pace and devices, with a file of the kernel's kind in its place; stopped before its first
    instruction."""
    require(row.emulator.program)
    require(f"{row.kernel.cross}gcc")
    kernel = tmp_path / "kernel"
    kernel.write_bytes(bytes(4096))
    if row.kernel.packing is Packing.ELF:
        kernel = natives.for_guests(row.name, f"{row.kernel.cross}gcc", row.kernel.cross_packages).collector
    machine = Machine(
        kind.name, 64 << 20, str(kernel), ("quiet",), network=True, cpu_model=row.emulator.cpu_model,
        architecture=row.name, extras=("-S", "-monitor", "stdio"), line=TalkLine.VIRTIO,
    )  # fmt: skip
    argv = qemu_command.command(machine)
    assert f"shift={row.emulator.pace},sleep=off" in argv
    at = argv.index("-chardev")
    argv[at : at + 4] = []  # the serial line, whose place the monitor has here
    assert argv[at : at + 2] == ["-chardev", "null,id=line"]
    ended = run(argv, stdin_bytes=b"info status\ninfo qtree\nquit\n", timeout_s=60)
    assert "paused" in ended.text and "virtio-net" in ended.text and "virtserialport" in ended.text


@pytest.mark.parametrize("row", OTHERS, ids=lambda row: row.name)
def test_guest_programs_are_of_the_processor_and_need_no_executable_stack(row: Architecture) -> None:
    require(f"{row.kernel.cross}gcc")
    made = natives.for_guests(row.name, f"{row.kernel.cross}gcc", row.kernel.cross_packages)
    in_containers = (made.init, made.stage1, made.client, made.builtin)
    for program in (*in_containers, made.attendant, made.collector, made.small_init, made.begin):
        data = program.read_bytes()
        assert int.from_bytes(data[18:20], "little") in row.elf, program.name
        assert elf.read(data, _stack) == [6], program.name
    assert set(natives.MARKS) == set(made.marks())


def _stack(file: ELFFile) -> list[int]:
    """Flags of the stack's segment: 4 read, 2 write, 1 execute."""
    return [int(one["p_flags"]) for one in file.iter_segments() if one["p_type"] == "PT_GNU_STACK"]
