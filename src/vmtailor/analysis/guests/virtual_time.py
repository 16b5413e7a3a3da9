# SPDX-License-Identifier: Apache-2.0
"""Virtual time of a boot on the instruction clock, from what was executed and what the guest's counter said."""

from __future__ import annotations

from vmtailor.model.architecture import Emulator

#: Share of a counter's round by which it may seem to be behind what was executed: an access that faults counts twice.
_SLACK = 100


def of_executed(executed: int, emulator: Emulator) -> int:
    """Nanoseconds in which so many instructions are executed, when nothing waits."""
    return executed << emulator.pace


def of_counter(counted_ns: int, executed: int | None, emulator: Emulator) -> int:
    """Nanoseconds since reset, by a counter that may have begun anew ahead of the kernel: at least the time that takes
    what was executed until then. Where that is not known, what the counter says."""
    if executed is None or not emulator.round_ns:
        return counted_ns
    lost_ns = of_executed(executed, emulator) - emulator.round_ns // _SLACK - counted_ns
    return counted_ns + max(0, -(-lost_ns // emulator.round_ns)) * emulator.round_ns
