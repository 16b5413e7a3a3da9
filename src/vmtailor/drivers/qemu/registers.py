# SPDX-License-Identifier: Apache-2.0
"""Registers of a machine, as QEMU's monitor tells them (`info registers -a`)."""

from __future__ import annotations

import re

from vmtailor.model.architecture import Emulator


def all_halted(registers: str, emulator: Emulator) -> bool:
    """Return whether every CPU waits for an interrupt while it takes none. Nothing but a reset ends that. False for a
    text that names no CPU, and where registers do not tell."""
    if not emulator.cpu:
        return False
    cpus = [found[0] for found in re.finditer(emulator.cpu, registers, re.DOTALL)]
    return bool(cpus) and all(re.fullmatch(emulator.halted, cpu, re.DOTALL) for cpu in cpus)
