# SPDX-License-Identifier: Apache-2.0
"""QEMU as it is installed: its version, its abilities, the CPU models that it emulates, and its environment."""

from __future__ import annotations

import functools
import os
import re
import shutil
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from vmtailor.base.errors import HostError, UserInputError
from vmtailor.base.process import require_tool, run
from vmtailor.drivers.confinement import program_needs
from vmtailor.model.architecture import Architecture, Board, named, presumed

#: Names another QEMU than the one on the PATH.
BINARY_VARIABLE = "VMTAILOR_QEMU"


@dataclass(frozen=True)
class Qemu:
    """One QEMU: its program, version and what it can do. `plugin_api` is None where its plugins cannot be used;
    `needs`, files and folders of the host that it cannot do without, is None where a script stands in its place.
    `full_version` is what it says of itself, the package's revision included."""

    program: str
    version: tuple[int, int]
    sandbox: bool
    plugin_api: int | None
    needs: tuple[str, ...] | None = None
    full_version: str = ""


@functools.cache
def _probe(program: str) -> Qemu:
    program = shutil.which(program) or program
    if not Path(program).is_file():
        raise HostError(f"the program '{program}' is not installed", hint="run: vmtailor doctor")
    script = program_needs.is_script(Path(program))
    real = str(Path(program).resolve())
    with ThreadPoolExecutor(max_workers=3) as pool:
        asked = pool.submit(lambda: run([program, "--version"], timeout_s=20).text)
        helping = pool.submit(lambda: run([program, "-help"], timeout_s=20).text)
        loads = pool.submit(program_needs.listed, Path(real))
        text = asked.result()
    found = re.search(r"version (\d+)\.(\d+)", text)
    if found is None:
        raise HostError(f"{program} does not say its version", details=text[:200])
    version = (int(found[1]), int(found[2]))
    helped = helping.result()
    api = plugin_api_of(version) if "-plugin " in helped else None
    full = text.splitlines()[0]
    return Qemu(
        program=program if script else real,
        version=version,
        sandbox="-sandbox " in helped,
        plugin_api=api,
        needs=None if script else program_needs.needs(Path(real), loads.result()),
        full_version=full,
    )


@functools.cache
def firmware(program: str, names: tuple[str, ...]) -> tuple[Path, ...]:
    """Return the files of a QEMU that guests of ours execute before their kernel, of these names."""
    return firmware_in(run([program, "-L", "help"], timeout_s=20).text.splitlines(), names)


def firmware_in(folders: Iterable[str], names: Iterable[str]) -> tuple[Path, ...]:
    """Return the firmware files of these names, in QEMU's folders for data."""
    found = {Path(folder, name).resolve() for folder in folders for name in names}
    return tuple(sorted(path for path in found if path.is_file()))


def plugin_api_of(version: tuple[int, int]) -> int | None:
    """Return the build of the plugin that a version of QEMU loads: 1 up to 8.2, 4 from 9.2 on; between them, none."""
    if version < (9, 0):
        return 1
    return 4 if version >= (9, 2) else None


def installed(architecture: str | None = None) -> Qemu:
    """Return the QEMU to use for an architecture: the one on the PATH, or what $VMTAILOR_QEMU names (for another
    processor than this host's: $VMTAILOR_QEMU_NAME, in capitals). Raises HostError when there is none."""
    family = presumed() if architecture is None else named(architecture)
    own = family.is_host or family.presumed
    variable = BINARY_VARIABLE if own else f"{BINARY_VARIABLE}_{family.name.upper()}"
    return _probe(os.environ.get(variable) or require_tool(family.emulator.program, family.emulator.package))


def plugin_api(architecture: str | None = None) -> int:
    """Return the build of the plugin that `installed()` loads. Raises HostError when it loads none."""
    qemu = installed(architecture)
    if qemu.plugin_api is None:
        raise HostError(
            f"QEMU {qemu.version[0]}.{qemu.version[1]} ({qemu.program}) cannot load the counting plugin",
            hint="use the QEMU of Debian 12 (7.2) or 13 (10.0)",
        )
    return qemu.plugin_api


def environment() -> dict[str, str]:
    """Return what QEMU sees of our environment: next to nothing."""
    kept = {name: os.environ[name] for name in ("PATH", "TMPDIR") if name in os.environ}
    return {"LC_ALL": "C", **kept}


_LEAST_MIB = 64


def require_cpu(architecture: Architecture, machine: Board, model: str) -> None:
    """Raise UserInputError, with QEMU's own words, for a CPU model that its emulator (TCG) does not have, or that does
    not go with the machine."""
    if model == architecture.emulator.cpu_model:
        return
    emulator = architecture.emulator
    said = _refusal(architecture, machine, model)
    # A machine that wants a kernel says so with every model.
    if said and said != _refusal(architecture, machine, emulator.cpu_model):
        raise UserInputError(
            f"QEMU emulates no CPU '{model[:64]}' in {architecture.title}'s machine {machine.name}",
            hint=f"without --cpu-model it is {emulator.cpu_model}; others: {emulator.program} -cpu help",
            details=said[-1000:],
        )


def _refusal(architecture: Architecture, machine: Board, model: str) -> str:
    """Return QEMU's message when it cannot make the machine; empty when it can."""
    argv = [installed(architecture.name).program, "-machine", ",".join((machine.name, *machine.options))]
    argv += ["-cpu", model, "-accel", "tcg", "-m", f"{max(_LEAST_MIB, machine.installed_mib)}M"]
    argv += ["-nodefaults", "-no-user-config", "-display", "none", "-S", "-monitor", "stdio"]
    ended = run(argv, stdin_bytes=b"quit\n", timeout_s=60, ok=range(-64, 256), env=environment())
    return (ended.error_text.strip() or f"it ended with {ended.returncode}") if ended.returncode else ""
