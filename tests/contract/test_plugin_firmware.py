# SPDX-License-Identifier: Apache-2.0
"""Firmware that stays beneath the kernel, counted by the plugin in a real QEMU, with a guest whose instructions can be
counted by hand (tests/guests/firmware.S)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from vmtailor.base import natives
from vmtailor.base.process import run
from vmtailor.drivers.monitors import counts_file
from vmtailor.drivers.qemu import plugin, qemu_program
from vmtailor.model.architecture import named
from vmtailor.model.boots.counters import CodeMark, CodeOwner, Counters, CountingConfig, OwnerCounts, Stretch

pytestmark = pytest.mark.contract

SOURCE = Path(__file__).parent.parent / "guests" / "firmware.S"
ROW = named("riscv64")
#: Where the guest's parts lie. The kernel runs higher, and the program runs where the firmware lies.
PLACES = {".firmware": 0x80000000, ".program": 0x80200000, ".kernel": 0x80400000}
HIGHER = 0xFFFFFFFF80000000 - 0x80000000


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Counters:
    for program in (ROW.emulator.program, f"{ROW.kernel.cross}gcc"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not here")
    folder = tmp_path_factory.mktemp("firmware")
    elf = folder / "guest"
    places = [f"-Wl,--section-start={name}={at:#x}" for name, at in PLACES.items()]
    flags = ["-nostdlib", "-static", "-march=rv64imac_zicsr", "-mabi=lp64", "-mcmodel=medany", "-Wl,--no-relax"]
    run([f"{ROW.kernel.cross}gcc", *flags, *places, "-Wl,--build-id=none", "-o", str(elf), str(SOURCE)], timeout_s=60)
    labels = natives.elf_symbols(elf.read_bytes())
    config = CountingConfig(
        kernel=labels["kernel"] + HIGHER,
        marks=tuple(CodeMark(name, labels[name] + HIGHER) for name in ("mark_calls", "mark_program", "mark_end")),
        owners=(CodeOwner("program", PLACES[".firmware"], PLACES[".firmware"] + 0x1000),),
        architecture=ROW.name,
    )
    prepared = plugin.prepare(natives.locate().plugin(qemu_program.plugin_api(ROW.name)), config, folder)
    argv = [qemu_program.installed(ROW.name).program, "-machine", "virt", "-m", "16M", "-cpu", ROW.emulator.cpu_model]
    argv += ["-accel", "tcg", "-icount", "shift=0,sleep=off", "-nodefaults", "-display", "none", "-bios", str(elf)]
    run([*argv, "-plugin", prepared.option()], timeout_s=60, env=qemu_program.environment())
    return counts_file.read(prepared.out)


def stretch(counters: Counters, begin: str) -> tuple[Stretch, int, int, int]:
    """A stretch, with what firmware, kernel and programs executed in it."""
    before = counters.at(begin)
    found = next(one for one in counters.stretches if one.begin == begin)
    assert before is not None
    here = found.at_end.since(before)
    return found, here.early, here.kernel, here.user


def owned(of: Stretch) -> dict[str, tuple[int, int]]:
    return {one.owner: (one.kernel, one.user) for one in of.owners if one != OwnerCounts(one.owner, 0, 0)}


def test_firmware_that_the_kernel_calls_is_nobodys_program(counted: Counters) -> None:
    of, firmware, kernel, user = stretch(counted, "mark_calls")
    assert (firmware, kernel, user) == (100 * 5, 100 * 3, 0)
    assert owned(of) == {"boot": (100 * 3, 0)}


def test_a_program_at_the_firmwares_addresses_is_a_program(counted: Counters) -> None:
    of, firmware, kernel, user = stretch(counted, "mark_program")
    assert (firmware, kernel, user) == (5, 7 + 1, 50 * 3 + 2)
    assert owned(of) == {"boot": (7, 0), "program": (1, 50 * 3 + 2)}


def test_blocks_of_the_firmware_are_told_from_the_kernels(counted: Counters) -> None:
    of, firmware, kernel, _ = stretch(counted, "mark_calls")
    early = counted.blocks.early[of.block]
    assert (int(of.executed[early].sum()), int(of.executed[~early].sum())) == (firmware, kernel)
    at = counted.blocks.vaddr[of.block[early]]
    where = ROW.addresses
    assert len(at) and bool(((at >= where.firmware_first) & (at <= where.firmware_last)).all())
