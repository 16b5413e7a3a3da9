# SPDX-License-Identifier: Apache-2.0
"""Guests that stand in for the BIOS, whose instructions can be counted by hand (tests/guests), and the plugin in a real
QEMU that counts them."""

from __future__ import annotations

import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

from vmtailor.base import natives
from vmtailor.base.process import run
from vmtailor.drivers.monitors import counts_file
from vmtailor.drivers.qemu import plugin, qemu_program
from vmtailor.model.boots.counters import Counters, CountingConfig

GUESTS = Path(__file__).parents[1] / "guests"
#: Where the guests are mapped a second time.
HIGH = 0xFFFFFFFF80000000


@dataclass(frozen=True)
class Guest:
    """A guest's image, and the addresses of its labels."""

    image: Path
    labels: dict[str, int]


def assemble(name: str, folder: Path) -> Guest:
    """Assemble NAME.S of tests/guests into a folder."""
    elf, image = folder / f"{name}.elf", folder / f"{name}.bin"
    run(["cc", "-c", "-o", f"{elf}.o", str(GUESTS / f"{name}.S")], timeout_s=60)
    run(["ld", "-m", "elf_x86_64", "-Ttext=0xf0000", "-e", "kernel", "-o", str(elf), f"{elf}.o"], timeout_s=60)
    run(["objcopy", "-O", "binary", "-j", ".text", str(elf), str(image)], timeout_s=60)
    return Guest(image, natives.elf_symbols(elf.read_bytes()))


def library(program: qemu_program.Qemu) -> Path:
    """Return the build of the plugin that goes with a QEMU."""
    assert program.plugin_api is not None
    return natives.locate().plugin(program.plugin_api)


def boot(
    program: qemu_program.Qemu, guest: Guest, config: CountingConfig, folder: Path
) -> tuple[Counters, list[int], bytes]:
    """Return the counters, the guest's readings of its TSC, and the plugin's file."""
    prepared, readings = _run(program, guest, library(program), config, folder)
    return counts_file.read(prepared.out), readings, prepared.out.read_bytes()


def follow(program: qemu_program.Qemu, guest: Guest, config: CountingConfig, folder: Path) -> bytes:
    """Return the file of the plugin that follows calls."""
    assert program.plugin_api is not None
    followed = natives.locate().call_plugin(program.plugin_api)
    prepared, _ = _run(program, guest, followed, config, folder)
    return prepared.out.read_bytes()


def _run(
    program: qemu_program.Qemu, guest: Guest, loaded: Path, config: CountingConfig, folder: Path
) -> tuple[plugin.Plugin, list[int]]:
    folder.mkdir(exist_ok=True)
    prepared = plugin.prepare(loaded, config, folder)
    argv = [program.program, "-machine", "microvm,acpi=off,auto-kernel-cmdline=off", "-m", "16M", "-cpu", "max"]
    argv += ["-accel", "tcg", "-icount", "shift=0,sleep=off", "-nodefaults", "-display", "none", "-no-reboot"]
    argv += ["-serial", "stdio", "-bios", str(guest.image), "-plugin", prepared.option()]
    finished = run(argv, timeout_s=60, env=qemu_program.environment())
    return prepared, [one for (one,) in struct.iter_unpack("<Q", finished.stdout)]


def assert_refused(program: qemu_program.Qemu, text: str, words: str, folder: Path) -> None:
    """Hold that the plugin refuses a configuration in these words, and writes nothing."""
    config, out = folder / "wrong", folder / "out"
    config.write_text(text)
    option = plugin.Plugin(library(program), config, out).option()
    argv = [program.program, "-machine", "microvm", "-nodefaults", "-display", "none", "-plugin", option]
    finished = subprocess.run(argv, capture_output=True, timeout=30, check=False, stdin=subprocess.DEVNULL)
    assert finished.returncode == 74
    assert words in finished.stderr.decode()
    assert not out.exists()
