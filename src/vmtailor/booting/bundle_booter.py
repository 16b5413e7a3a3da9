# SPDX-License-Identifier: Apache-2.0
"""Boots of a bundle with its own exercise, which defines ready and judges the answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from vmtailor.analysis.cost.plugin_counts import SymbolTable, initcall_spans
from vmtailor.analysis.guests import boots, kernel_complaints
from vmtailor.base.errors import UserInputError
from vmtailor.base.natives import Natives
from vmtailor.booting.boot_counter import Counting
from vmtailor.booting.booter import OnProgress, boot
from vmtailor.drivers.host.bundle_folder import BundleFolder
from vmtailor.model.boots.boot import Boot
from vmtailor.model.boots.counters import CountingConfig
from vmtailor.model.boots.ending import Gathered
from vmtailor.model.boots.workload import FIXED_KEY, Exercised, Run, Workload
from vmtailor.model.bundle import SYSTEM_MAP
from vmtailor.model.exercise import Exercise
from vmtailor.model.machine import Clock, Machine

OTHER_INIT = "its init was not met where it marks the milestones: the bundle is of another version; fit the image again"


class ExercisedBooter:
    """A booter of machines that our init starts, with an exercise. Each kernel has its table of symbols beside it."""

    def __init__(self, natives: Natives, architecture: str) -> None:
        self._natives = natives
        self._architecture = architecture
        self._tables: dict[str, SymbolTable] = {}

    def symbols_of(self, kernel: str) -> bytes:
        """Return the table of a kernel's symbols, as its file has it."""
        return Path(kernel).with_name(SYSTEM_MAP).read_bytes()

    def init_marks(self) -> dict[str, int]:
        """Return the places where init marks the milestones of a boot."""
        return self._natives.marks()

    def table(self, kernel: str) -> SymbolTable:
        """Return the symbols of a kernel."""
        if kernel not in self._tables:
            text = self.symbols_of(kernel).decode("ascii", "replace")
            self._tables[kernel] = SymbolTable.parse(text, self._architecture)
        return self._tables[kernel]

    def __call__(
        self, machine: Machine, workload: Workload, scratch: Path, *, on_progress: OnProgress | None = None
    ) -> tuple[Boot, Gathered]:
        """Boot once; on the instruction clock everything is counted. The console has the names of initcalls."""
        table = self.table(kernel_of(machine))
        exact = machine.clock is Clock.INSTRUCTIONS
        found, gathered = boot(
            machine, workload, scratch, counting=self._counting(table) if exact else None, on_progress=on_progress
        )
        console = kernel_complaints.named(gathered.console.decode("utf-8", "replace"), table).encode("utf-8", "replace")
        if gathered.counters is not None and gathered.counters.at("init") is None:
            found = replace(found, kernel_warnings=(*found.kernel_warnings, OTHER_INIT))
        return found, replace(gathered, console=console)

    def _counting(self, table: SymbolTable) -> Counting:
        marks = boots.marks_at(table, self.init_marks())
        return Counting(
            self._natives,
            CountingConfig(marks=marks, spans=initcall_spans(table), architecture=table.architecture),
            table,
        )


class BundleBooter(ExercisedBooter):
    """A booter of a bundle's variants, with its exercise. A variant with another kernel has that kernel's table of
    symbols beside it."""

    def __init__(self, loaded: BundleFolder, natives: Natives) -> None:
        super().__init__(natives, loaded.bundle.architecture)
        self._loaded = loaded

    def symbols_of(self, kernel: str) -> bytes:
        """Return the table of the bundle's kernel, or of a recompiled one from the file beside it."""
        return self._loaded.symbols if kernel == str(self._loaded.kernel) else super().symbols_of(kernel)

    def init_marks(self) -> dict[str, int]:
        """Return the marks of the bundle's own init: another version of this program has another one."""
        own = self._loaded.init_marks
        return super().init_marks() if own is None else own


def workload_of(exercise: Exercise, timeout_s: float) -> Exercised:
    """Return the workload of a bundle: an exercise, with the same bytes in every boot."""
    return Exercised(Run(exercise=exercise, key=FIXED_KEY), timeout_s)


def kernel_of(machine: Machine) -> str:
    """Return the kernel of a bundle's machine. Raises UserInputError for what such a machine cannot have."""
    if machine.kernel is None:
        raise UserInputError("a bundle's machine has a kernel of its own")
    if machine.extras or machine.firmware:
        raise UserInputError("a bundle's machine takes no further options of its monitor")
    return machine.kernel
