# SPDX-License-Identifier: Apache-2.0
"""The plugin in a real QEMU, with a guest whose instructions can be counted by hand (tests/guests/counting.S).

$VMTAILOR_QEMU names a second QEMU, of another version, to be tested beside the one on the PATH."""

from __future__ import annotations

import os
import struct
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from vmtailor.base import natives
from vmtailor.base.process import run
from vmtailor.drivers.monitors import counts_file
from vmtailor.drivers.qemu import plugin, qemu_program
from vmtailor.model.boots.counters import CodeMark, CodeOwner, CodeSpan, Counters, CountingConfig, CountingMode, Stretch

pytestmark = pytest.mark.contract

SOURCE = Path(__file__).parent.parent / "guests" / "counting.S"
HIGH = 0xFFFFFFFF80000000
MARKS = ("mark_loop", "mark_ports", "mark_mmio", "mark_faults", "mark_first", "mark_second", "mark_end")


@pytest.fixture(scope="session")
def guest(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, int]]:
    """The guest's image, and the addresses of its labels."""
    folder = tmp_path_factory.mktemp("guest")
    elf, image = folder / "counting.elf", folder / "counting.bin"
    run(["cc", "-c", "-o", f"{elf}.o", str(SOURCE)], timeout_s=60)
    run(["ld", "-m", "elf_x86_64", "-Ttext=0xf0000", "-e", "kernel", "-o", str(elf), f"{elf}.o"], timeout_s=60)
    run(["objcopy", "-O", "binary", "-j", ".text", str(elf), str(image)], timeout_s=60)
    return image, natives.elf_symbols(elf.read_bytes())


@pytest.fixture(params=["the QEMU on the PATH", "the QEMU of $VMTAILOR_QEMU"])
def machine_program(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> qemu_program.Qemu:
    """A QEMU and the build of the plugin that goes with it."""
    if "PATH" in request.param and "$" not in request.param:
        monkeypatch.delenv(qemu_program.BINARY_VARIABLE, raising=False)
    elif qemu_program.BINARY_VARIABLE not in os.environ:
        pytest.skip(f"{qemu_program.BINARY_VARIABLE} does not name a second QEMU")
    return qemu_program.installed()


def config_for(
    labels: dict[str, int], mode: CountingMode = CountingMode.COUNTS, devices: bool = True
) -> CountingConfig:
    return CountingConfig(
        kernel=HIGH + labels["kernel"],
        mode=mode,
        devices=devices,
        marks=tuple(CodeMark(name, HIGH + labels[name]) for name in MARKS),
        spans=(CodeSpan("spanned", HIGH + labels["spanned"]),),
        owners=(
            CodeOwner("first", labels["first"], labels["second"]),
            CodeOwner("second", labels["second"], labels["second_end"]),
        ),
    )


def boot(
    program: qemu_program.Qemu, image: Path, config: CountingConfig, folder: Path
) -> tuple[Counters, list[int], bytes]:
    """Counters, the guest's readings of its TSC, and the plugin's file."""
    assert program.plugin_api is not None
    folder.mkdir(exist_ok=True)
    prepared = plugin.prepare(natives.locate().plugin(program.plugin_api), config, folder)
    argv = [program.program, "-machine", "microvm,acpi=off,auto-kernel-cmdline=off", "-m", "16M", "-cpu", "max"]
    argv += ["-accel", "tcg", "-icount", "shift=0,sleep=off", "-nodefaults", "-display", "none", "-no-reboot"]
    argv += ["-serial", "stdio", "-bios", str(image), "-plugin", prepared.option()]
    finished = run(argv, timeout_s=60, env=qemu_program.environment())
    readings = list(struct.unpack("<7Q", finished.stdout))
    return counts_file.read(prepared.out), readings, prepared.out.read_bytes()


def stretch(counters: Counters, begin: str) -> Stretch:
    return next(s for s in counters.stretches if s.begin == begin)


def owner(of: Stretch, name: str) -> tuple[int, int]:
    found = next(o for o in of.owners if o.owner == name)
    return found.kernel, found.user


def test_instructions_are_counted_as_by_hand_and_as_by_the_guests_clock(
    machine_program: qemu_program.Qemu, guest: tuple[Path, dict[str, int]], tmp_path: Path
) -> None:
    image, labels = guest
    counters, readings, _ = boot(machine_program, image, config_for(labels), tmp_path)
    assert counters.complete
    assert counters.exact
    reached = [counters.at(name) for name in MARKS]
    assert [name for name, _ in counters.marks] == list(MARKS)
    executed = [totals.executed for totals in reached if totals is not None]
    by_hand = [2 + 2000 + 3, 8 + 4 + 3, 3 + 10 * 6 + 3, 2 + 10 * 15 + 3, 6 + 1501 + 2002 + 3, 6 + 301 + 1502 + 3]
    assert [b - a for a, b in pairwise(executed)] == by_hand
    # An access that faults is begun twice; the guest's clock counts only the second: the one difference.
    by_clock = [b - a for a, b in pairwise(readings)]
    assert by_hand[3] - by_clock[3] == 10
    assert by_hand[:3] + by_hand[4:] == by_clock[:3] + by_clock[4:]


def test_to_settle_counts_nothing_and_changes_nothing(
    machine_program: qemu_program.Qemu, guest: tuple[Path, dict[str, int]], tmp_path: Path
) -> None:
    image, labels = guest
    counted = boot(machine_program, image, config_for(labels), tmp_path / "counts")[1]
    counters, readings, _ = boot(machine_program, image, config_for(labels, CountingMode.SETTLE), tmp_path / "settle")
    assert readings == counted
    assert [totals.executed for _, totals in counters.marks] == []
    (whole,) = counters.stretches
    assert whole.at_end.executed == 0


def test_accesses_to_devices_are_counted(
    machine_program: qemu_program.Qemu, guest: tuple[Path, dict[str, int]], tmp_path: Path
) -> None:
    image, labels = guest
    counters, _, _ = boot(machine_program, image, config_for(labels), tmp_path)
    at = {name: counters.at(name) for name in MARKS}
    loop, ports, mmio, faults = (at[name] for name in MARKS[:4])
    assert loop is not None and ports is not None and mmio is not None and faults is not None
    assert mmio.since(ports).ports == 4 + 3 + 1  # QEMU starts a repeated instruction once more, to find it done
    assert mmio.since(ports).mmio == 0
    assert faults.since(mmio).ports == 0
    assert faults.since(mmio).mmio == 20
    assert dict(stretch(counters, "mark_mmio").devices) == {"apic-msi": 20}
    assert loop.ports == 0


def test_work_goes_to_its_owner(
    machine_program: qemu_program.Qemu, guest: tuple[Path, dict[str, int]], tmp_path: Path
) -> None:
    image, labels = guest
    counters, _, _ = boot(machine_program, image, config_for(labels), tmp_path)
    first = stretch(counters, "mark_first")
    # addq, movl, movl, leaq, movl, sysretq before it; jmpq, movl, 1000 × 2, rdtsc, movl, movl after it
    assert owner(first, "first") == (1 + 1 + 2000 + 3, 3 * 500 + 1)
    assert owner(first, "boot") == (6, 0)
    second = stretch(counters, "mark_second")
    assert owner(second, "first") == (6, 0)
    assert owner(second, "second") == (1 + 1 + 300 * 5 + 3, 3 * 100 + 1)
    assert owner(second, "other") == (0, 0)


def test_spans_give_the_instructions_between_passages(
    machine_program: qemu_program.Qemu, guest: tuple[Path, dict[str, int]], tmp_path: Path
) -> None:
    image, labels = guest
    counters, _, _ = boot(machine_program, image, config_for(labels), tmp_path)
    assert len(counters.spans) == 300
    gaps = {b.at.executed - a.at.executed for a, b in pairwise(counters.spans)}
    assert gaps == {5}  # nop, ret, decl, jnz, call


def test_two_boots_give_the_same_file_and_blocks_add_up(
    machine_program: qemu_program.Qemu, guest: tuple[Path, dict[str, int]], tmp_path: Path
) -> None:
    image, labels = guest
    counters, _, data = boot(machine_program, image, config_for(labels), tmp_path / "a")
    assert boot(machine_program, image, config_for(labels), tmp_path / "b")[2] == data
    for before, one in pairwise(counters.stretches):
        here = one.at_end.since(before.at_end)
        assert int(one.executed.sum()) == here.early + here.kernel
        assert sum(o.kernel for o in one.owners) == here.kernel
        assert sum(o.user for o in one.owners) == here.user


def test_coverage_counts_blocks_whole(
    machine_program: qemu_program.Qemu, guest: tuple[Path, dict[str, int]], tmp_path: Path
) -> None:
    image, labels = guest
    exact, _, _ = boot(machine_program, image, config_for(labels), tmp_path / "a")
    whole, _, _ = boot(machine_program, image, config_for(labels, CountingMode.COVERAGE), tmp_path / "b")
    assert not whole.exact
    assert int(stretch(whole, "mark_faults").executed.sum()) == 0
    counted, covered = stretch(exact, "mark_faults"), stretch(whole, "mark_faults")
    entered = counted.entries > 0  # the block that the mark lies in was entered before it
    assert counted.entries[entered].tolist() == covered.entries.tolist()
    assert counted.block[entered].tolist() == covered.block.tolist()
    # Blocks left by a fault count whole.
    assert int((covered.entries * whole.blocks.insns[covered.block]).sum()) > int(counted.executed.sum())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mode fast\n", "line 1: unknown value"),
        ("# fine\nmark a xyz\n", "line 2: bad address"),
        ("owner a 20 10\n", "line 1: bad address range"),
        ("mark a\n", "line 1: mark NAME ADDRESS"),
        ("kernel\n", "line 1: kernel ADDRESS"),
        ("sing a song\n", "line 1: unknown statement"),
    ],
)
def test_a_wrong_configuration_is_refused(
    machine_program: qemu_program.Qemu, tmp_path: Path, text: str, words: str
) -> None:
    assert machine_program.plugin_api is not None
    library = natives.locate().plugin(machine_program.plugin_api)
    config = tmp_path / "wrong"
    config.write_text(text)
    option = plugin.Plugin(library, config, tmp_path / "out").option()
    argv = [machine_program.program, "-machine", "microvm", "-nodefaults", "-display", "none", "-plugin", option]
    finished = subprocess.run(argv, capture_output=True, timeout=30, check=False, stdin=subprocess.DEVNULL)
    assert finished.returncode == 74
    assert words in finished.stderr.decode()
    assert not (tmp_path / "out").exists()
