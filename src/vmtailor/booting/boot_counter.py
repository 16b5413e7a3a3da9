# SPDX-License-Identifier: Apache-2.0
"""Counters of a boot, whatever its monitor counts with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from vmtailor.analysis.cost.plugin_counts import SymbolTable
from vmtailor.base import natives
from vmtailor.base.natives import Natives
from vmtailor.drivers.monitors import monitors
from vmtailor.drivers.monitors.monitor import Counter
from vmtailor.model.boots.counters import CodeOwner, Counters, CountingConfig, CountingMode
from vmtailor.model.machine import Clock, Machine


@dataclass(frozen=True)
class Counting:
    """A count to make in a boot. `natives` has what the monitor counts with; `table` names the functions."""

    natives: Natives
    config: CountingConfig
    table: SymbolTable | None = None


def settling(machine: Machine) -> Counting | None:
    """Return a count of nothing, where a counter is needed nevertheless: on the instruction clock a guest that idles
    jumps to its next timer, and would come to the end of its patience while a busy host reads its disk. None on the
    wall clock, for several CPUs, which no counter can hold, and with a monitor that counts nothing."""
    if machine.clock is not Clock.INSTRUCTIONS or machine.cpus > 1:
        return None
    if not monitors.of(machine).counts(machine.architecture):
        return None
    return Counting(natives.locate(), CountingConfig(mode=CountingMode.SETTLE, architecture=machine.architecture))


def prepare(
    machine: Machine, wanted: Counting | None, folder: Path, owners: Iterable[CodeOwner] = ()
) -> Counter | None:
    """Return the counter of a boot, its files in a folder; None where nothing is counted. `owners`: user code that is
    kept apart, besides what the configuration names."""
    if wanted is None:
        return None
    config = replace(wanted.config, owners=(*wanted.config.owners, *owners))
    return monitors.of(machine).counter(config, wanted.natives, folder)


def counted(counter: Counter | None) -> tuple[bytes, Counters | None]:
    """Return the file that a counter left, and what it says; nothing where there is none."""
    return (b"", None) if counter is None else counter.counted()
