# SPDX-License-Identifier: Apache-2.0
"""Boots on the instruction clock of systems with an init of their own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from vmtailor.analysis.cost import attribution
from vmtailor.analysis.cost.plugin_counts import KERNEL_MARK, SymbolTable, activity_spans, initcall_spans, kernel_marks
from vmtailor.analysis.guests.machine_variants import countable
from vmtailor.base.errors import UserInputError
from vmtailor.base.natives import Natives
from vmtailor.booting.boot_counter import Counting
from vmtailor.booting.booter import OnProgress, boot
from vmtailor.model.boots.boot import Boot
from vmtailor.model.boots.counters import CodeMark, CountingConfig, CountingMode
from vmtailor.model.boots.ending import Gathered
from vmtailor.model.boots.workload import Workload
from vmtailor.model.machine import Machine

#: The function that executes the first program: /init of the initial RAM disk, or init itself.
_INIT_FUNCTION = "run_init_process"


class CountedToInit:
    """A booter with the plugin, which counts from kernel entry to init."""

    def __init__(
        self,
        system_map: Path,
        natives: Natives,
        mode: CountingMode = CountingMode.COUNTS,
        architecture: str | None = None,
    ) -> None:
        """`mode`: to compare totals, blocks counted whole are enough, and several times as fast.

        Raises UserInputError for a kernel whose symbols do not name where it starts init."""
        table = SymbolTable.parse(system_map.read_text("ascii", "replace"), architecture)
        if _INIT_FUNCTION not in table.addresses:
            raise UserInputError(f"{system_map} does not name {_INIT_FUNCTION}")
        marks = (*kernel_marks(table), CodeMark(attribution.INIT_MARK, table.addresses[_INIT_FUNCTION]))
        spans = (*initcall_spans(table), *activity_spans(table))
        config = CountingConfig(mode=mode, marks=marks, spans=spans, architecture=table.architecture)
        self._counting = Counting(natives, config)

    def __call__(
        self, machine: Machine, workload: Workload, scratch: Path, *, on_progress: OnProgress | None = None
    ) -> tuple[Boot, Gathered]:
        """Boot once; `instructions` of the boot is from kernel entry to init."""
        found, gathered = boot(countable(machine), workload, scratch, counting=self._counting, on_progress=on_progress)
        counted = gathered.counters
        begin = counted.at(KERNEL_MARK) if counted is not None else None
        end = counted.at(attribution.INIT_MARK) if counted is not None else None
        executed = end.since(begin).executed if begin is not None and end is not None else None
        return replace(found, instructions=executed), gathered


class Settled:
    """A booter with the plugin and no marks. The plugin lets devices finish before the guest goes on; without it
    virtual time would depend on the host's disks."""

    def __init__(self, natives: Natives) -> None:
        self._natives = natives

    def __call__(
        self, machine: Machine, workload: Workload, scratch: Path, *, on_progress: OnProgress | None = None
    ) -> tuple[Boot, Gathered]:
        """Boot once; `ready` has the instructions that were executed until then."""
        config = CountingConfig(mode=CountingMode.COVERAGE, architecture=machine.architecture)
        wanted = Counting(self._natives, config)
        found, gathered = boot(countable(machine), workload, scratch, counting=wanted, on_progress=on_progress)
        counted = gathered.counters
        # The machine ends a moment after ready: that much too many.
        end = counted.stretches[-1].at_end.executed if counted is not None and counted.stretches else None
        marks = tuple(replace(m, executed=end) if m.name == "ready" else m for m in found.milestones)
        return replace(found, milestones=marks), gathered
