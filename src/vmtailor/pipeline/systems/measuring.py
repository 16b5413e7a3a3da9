# SPDX-License-Identifier: Apache-2.0
"""Both machines of a system measured until it is ready, each once for the same bytes, and the figures of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from vmtailor.analysis.cost import loops, side_figures
from vmtailor.analysis.cost.plugin_counts import SymbolTable
from vmtailor.analysis.cost.side_figures import KernelFacts
from vmtailor.model.boots.workload import Until
from vmtailor.model.fit import Side
from vmtailor.model.machine import Clock, Machine
from vmtailor.pipeline import keys
from vmtailor.pipeline.fitting import Built, Fitted
from vmtailor.pipeline.measuring import fit_sides, machines
from vmtailor.pipeline.measuring.fit_sides import Sides
from vmtailor.pipeline.measuring.machines import Ahead, Asked, Measured
from vmtailor.pipeline.systems.fitting import SystemFindings, target_of
from vmtailor.pipeline.systems.inputs import SystemInputs
from vmtailor.stages import measure, system_verify
from vmtailor.stages.measure import MeasuredMachine


def asked_of(
    given: SystemInputs, machine: Machine, table: SymbolTable, title: str, beside: Asked | None = None
) -> Asked:
    """A machine driven until its system is ready, as it is to be measured. `beside`: the machine that bounds what it
    may take for its least memory."""
    attendant = keys.content(given.natives.attendant)
    boots, other = given.options.boots, beside.key if beside is not None else ""
    key = keys.of_run(measure, machine, given.exercise, given.natives, attendant, str(boots), "to ready", other)

    def subject(scratch: Path) -> MeasuredMachine:
        work = system_verify.workload(target_of(given, machine), scratch, until=Until.READY)
        return MeasuredMachine(machine, table, given.exercise.inside(), given.natives, work)

    return Asked(title, key, boots, given.options.store, given.scratch, subject, beside=beside)


def baseline_asked(given: SystemInputs) -> Asked:
    """The system on its own kernel, as it is to be measured."""
    return asked_of(given, given.baseline, given.table, fit_sides.BASELINE)


def tailored_asked(given: SystemInputs, fitted: Built | Fitted) -> Asked:
    """The tailored machine likewise, set beside the baseline."""
    table = SymbolTable.parse(Path(fitted.kernel.system_map).read_text(), fitted.machine.architecture)
    return asked_of(given, fitted.machine, table, fit_sides.TAILORED, baseline_asked(given))


def both_sides(found: SystemFindings, fitted: Fitted, begun: Ahead | None = None) -> Sides:
    """Baseline and tailored machine: same machine type, memory and disk. `begun`: where they may be being counted
    already."""
    given = found.inputs
    before, after = machines.both(baseline_asked(given), tailored_asked(given, fitted), begun)
    where = fit_sides.files_of(found.costs) if found.costs is not None else {}
    baseline = _side(given, baseline_facts(found), "baseline", given.baseline, before, where)
    tailored = _side(given, fit_sides.tailored_facts(fitted), "tailored", fitted.machine, after, where)
    if found.costs is not None:
        baseline = replace(baseline, symbol_costs=fit_sides.by_symbol(found.costs))
    return Sides(before, after, baseline, tailored)


def _side(
    given: SystemInputs, kernel: KernelFacts, name: str, machine: Machine, found: Measured, where: Mapping[str, str]
) -> Side:
    side = side_figures.make_side(
        kernel, name, found.exact, device_boot=found.exact[0], wall_boots=found.wall,
        loops=loops.table(machine.architecture), min_memory_bytes=found.min_memory_bytes, memory=found.memory,
        initcalls=found.initcalls, subsystems=fit_sides.by_folder(found, where) if where else (),
    )  # fmt: skip
    subject = MeasuredMachine(machine, given.table, given.exercise.inside(), given.natives)
    return replace(
        side,
        conditions=measure.conditions(subject, Clock.INSTRUCTIONS),
        wall_conditions=(*measure.conditions(subject, Clock.WALL), ("boots", str(len(found.wall)))),
    )


def baseline_facts(found: SystemFindings) -> KernelFacts:
    """The system's own kernel file, packed as it is."""
    given, kconfig = found.inputs, found.tree.kconfig
    enabled = [name for name, value in given.config.items() if value == "y"]
    size = Path(given.baseline.kernel or "").stat().st_size
    return KernelFacts(
        label=given.kernel.release,
        file="vmlinuz",
        symbols_y=len(enabled),
        symbols_prompted=sum(1 for name in enabled if kconfig.known(name) and kconfig.prompted(name)),
        bytes=size,
        compressed_bytes=size,
    )
