# SPDX-License-Identifier: Apache-2.0
"""Counters of a boot, for every monitor."""

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
    """A request to count in a boot. `natives` has the monitor's plugin; `table` names the functions."""

    natives: Natives
    config: CountingConfig
    table: SymbolTable | None = None


def settling(machine: Machine) -> Counting | None:
    """Return a request that counts nothing but lets the guest wait for its disks. On the instruction clock an idle
    guest jumps to its next timer, and would run out of patience while a busy host reads the disk. None on the wall
    clock, for several CPUs, and with a monitor that cannot count."""
    if machine.clock is not Clock.INSTRUCTIONS or machine.cpus > 1:
        return None
    if not monitors.of(machine).counts(machine.architecture):
        return None
    return Counting(natives.locate(), CountingConfig(mode=CountingMode.SETTLE, architecture=machine.architecture))


def prepare(
    machine: Machine, wanted: Counting | None, folder: Path, owners: Iterable[CodeOwner] = ()
) -> Counter | None:
    """Return the counter of a boot, with its files in a folder; None when nothing is counted. `owners`: user code that
    is counted apart, besides that of the configuration."""
    if wanted is None:
        return None
    config = replace(wanted.config, owners=(*wanted.config.owners, *owners))
    return monitors.of(machine).counter(config, wanted.natives, folder)


def counted(counter: Counter | None) -> tuple[bytes, Counters | None]:
    """Return the file that a counter left, and its counters; empty when there is none."""
    return (b"", None) if counter is None else counter.counted()
