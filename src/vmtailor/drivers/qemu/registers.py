# SPDX-License-Identifier: Apache-2.0
"""What QEMU's monitor says of the registers (`info registers -a`)."""

from __future__ import annotations

import re

#: x86: the flags, with "interrupts are taken" among them, and whether the CPU waits for an interrupt.
_CPU = re.compile(r"\b[ER]FL=([0-9a-f]{8}) .*?\bHLT=([01])", re.DOTALL)
_TAKES_INTERRUPTS = 1 << 9


def all_halted(registers: str) -> bool:
    """Does every CPU wait for an interrupt while it takes none? Nothing but a reset ends that. False for a text that
    names no CPU."""
    cpus = _CPU.findall(registers)
    return bool(cpus) and all(waits == "1" and not int(flags, 16) & _TAKES_INTERRUPTS for flags, waits in cpus)
