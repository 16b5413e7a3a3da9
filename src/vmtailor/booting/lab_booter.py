# SPDX-License-Identifier: Apache-2.0
"""Boots of a bundle by a monitor in the lab, counted from the monitor's exec on: the lab's kernel, the monitor and the
guest, each apart."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path

from vmtailor.analysis.cost import monitor_costs
from vmtailor.analysis.cost.plugin_counts import SymbolTable
from vmtailor.analysis.guests import boots
from vmtailor.base import output
from vmtailor.base.errors import GuestError
from vmtailor.base.natives import Natives
from vmtailor.booting.boot_counter import Counting
from vmtailor.booting.booter import OnProgress, boot
from vmtailor.drivers.host.bundle_folder import BundleFolder
from vmtailor.drivers.monitors import lab_folder, monitors
from vmtailor.drivers.monitors.lab_folder import SMALL_PAGES
from vmtailor.model.boots.boot import Boot
from vmtailor.model.boots.counters import START_KERNEL
from vmtailor.model.boots.ending import Gathered
from vmtailor.model.boots.exits import ExitPlace, MonitorCost, SmallPages, exit_rows
from vmtailor.model.boots.workload import Clients, Exercised, Workload
from vmtailor.model.machine import Machine


class LabBooter:
    """A booter of a bundle's machine in the lab. The first boot is repeated twice: with KVM's trace, which tells what
    exits were about and itself costs instructions, and on a host without huge pages."""

    def __init__(self, loaded: BundleFolder, natives: Natives) -> None:
        self._natives = natives
        self._architecture = loaded.bundle.architecture
        self._rows = exit_rows(self._architecture)
        guest = SymbolTable.parse(loaded.symbols.decode("ascii", "replace"), self._architecture)
        own = loaded.init_marks
        self._marks = boots.marks_at(guest, natives.marks() if own is None else own)
        self._start = guest.addresses.get(START_KERNEL)
        self._again: tuple[tuple[ExitPlace, ...], SmallPages | None] | None = None

    def __call__(
        self, machine: Machine, workload: Workload, scratch: Path, *, on_progress: OnProgress | None = None
    ) -> tuple[Boot, Gathered]:
        """Boot once, and again when it is the first time. Milestones are since the monitor's exec."""
        assert isinstance(workload, Exercised)
        workload = replace(workload, timeout_s=workload.timeout_s * monitors.of(machine).slowness)
        found, gathered, cost = self._counted(machine, workload, scratch, on_progress)
        until = cost.until("ready") if cost is not None else None
        if cost is not None and until is not None:
            if self._again is None:
                self._again = (
                    self._traced(machine, workload, scratch, until.exits, on_progress),
                    self._with_small_pages(machine, workload, scratch, on_progress),
                )
            cost = replace(cost, places=self._again[0], small_pages=self._again[1])
        return replace(found, monitor=cost), gathered

    def _counted(
        self, machine: Machine, workload: Exercised, scratch: Path, on_progress: OnProgress | None
    ) -> tuple[Boot, Gathered, MonitorCost | None]:
        around = self._natives.begin_marks()
        if workload.clients is Clients.HOST:
            around |= self._natives.load_marks()
        config = monitor_costs.config(self._lab, around, self._marks, self._start, self._rows)
        counting = Counting(self._natives, config)
        found, gathered = boot(machine, workload, scratch, counting=counting, on_progress=on_progress)
        if gathered.counters is None:
            return found, gathered, None
        cost = monitor_costs.cost(gathered.counters, self._rows, self._lab, gathered.lasted_ns)
        if cost is not None and cost.causes and {one.cause for one in cost.causes} == {monitor_costs.OTHER}:
            raise GuestError("the lab's kernel is not where its table says", hint="make lab builds the lab anew")
        marks = monitor_costs.milestones(gathered.counters, gathered.report.marks, gathered.lasted_ns)
        return replace(found, milestones=marks, phases=(), functions=()), gathered, cost

    def _with_small_pages(
        self, machine: Machine, workload: Exercised, scratch: Path, on_progress: OnProgress | None
    ) -> SmallPages | None:
        """Boot once more on a host without huge pages, and return what differs; None if it did not get ready."""
        _, _, cost = self._counted(replace(machine, extras=(SMALL_PAGES,)), workload, scratch, on_progress)
        until = cost.until("ready") if cost is not None else None
        return None if cost is None or until is None else SmallPages(until, cost.causes)

    @cached_property
    def _lab(self) -> SymbolTable:
        """The functions of the lab's kernel."""
        lab, folder = lab_folder.load(self._architecture)
        return SymbolTable.parse((folder / lab_folder.SYMBOLS).read_text("ascii", "replace"), lab.architecture)

    def _traced(
        self, machine: Machine, workload: Exercised, scratch: Path, exits: int, on_progress: OnProgress | None
    ) -> tuple[ExitPlace, ...]:
        """Boot once more, with KVM's trace, and return what the first exits were about."""
        _, gathered = boot(machine, replace(workload, exits=True), scratch, on_progress=on_progress)
        if not monitor_costs.has_exits(gathered.exits, exits):
            output.note("KVM's trace has no room for all exits until ready: what they were about is not told")
            return ()
        return monitor_costs.places(gathered.exits, self._rows, exits)
