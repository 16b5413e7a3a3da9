# SPDX-License-Identifier: Apache-2.0
"""CPU models that QEMU emulates in a machine: asked of QEMU, which makes the machine and ends before it runs."""

from __future__ import annotations

from vmtailor.base import process
from vmtailor.base.errors import UserInputError
from vmtailor.drivers.qemu import qemu_program
from vmtailor.model.architecture import Architecture, Board

_LEAST_MIB = 64


def require(architecture: Architecture, machine: Board, model: str) -> None:
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
    argv = [qemu_program.installed(architecture.name).program, "-machine", ",".join((machine.name, *machine.options))]
    argv += ["-cpu", model, "-accel", "tcg", "-m", f"{max(_LEAST_MIB, machine.installed_mib)}M"]
    argv += ["-nodefaults", "-no-user-config", "-display", "none", "-S", "-monitor", "stdio"]
    ended = process.run(argv, stdin_bytes=b"quit\n", timeout_s=60, ok=range(-64, 256), env=qemu_program.environment())
    return (ended.error_text.strip() or f"it ended with {ended.returncode}") if ended.returncode else ""
