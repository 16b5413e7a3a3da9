# SPDX-License-Identifier: Apache-2.0
"""Both sides measured, each once for the same bytes, and the figures of each."""

from __future__ import annotations

import lzma
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from vmtailor.analysis.cost import sides
from vmtailor.analysis.cost.counters import SymbolTable
from vmtailor.analysis.cost.sides import TO_READY, KernelFacts, LoopNames
from vmtailor.base import records
from vmtailor.base.progress import step
from vmtailor.model.architecture import named
from vmtailor.model.fit import Ledger, Side
from vmtailor.model.machine import Clock, Machine
from vmtailor.model.plan import Plan
from vmtailor.pipeline import keys
from vmtailor.pipeline.fitting import Findings, Fitted
from vmtailor.stages import measure
from vmtailor.stages.measure import Measured, Subject

RECORD = "measured.json"
#: Folders of the source tree that are told apart one level deeper.
_DEEP = ("arch", "drivers", "net", "fs")


def loop_table(architecture: str) -> tuple[LoopNames, ...]:
    """The loops that only emulation causes, as the architecture's file has them."""
    return tuple(LoopNames(row.name, row.functions, row.reason) for row in named(architecture).loop)


def measured(findings: Findings, machine: Machine, table: SymbolTable, title: str) -> Measured:
    """All boots of one machine; found again when nothing they depend on has changed."""
    ground = findings.ground
    key = keys.of_run(measure, machine, ground.exercise, ground.natives, str(ground.options.boots))

    def fill(folder: Path) -> None:
        with step(f"measure: {title}") as progress:
            subject = Subject(machine, table, ground.exercise, ground.natives)
            record = measure.measure(
                subject, ground.options.boots, folder, ground.scratch, lambda note: progress.update(0, None, note)
            )
        records.save(record, folder / RECORD)

    return records.load(Measured, ground.options.store.get("measured", key, fill) / RECORD)


def both_sides(findings: Findings, fitted: Fitted) -> tuple[Side, Side]:
    """Baseline and tailored machine: same machine type, memory and root file system."""
    ground = findings.ground
    before = measured(findings, ground.baseline, ground.table, "the baseline")
    table = SymbolTable.parse(Path(fitted.kernel.system_map).read_text(), fitted.machine.architecture)
    after = measured(findings, fitted.machine, table, "the tailored machine")
    baseline = side_of(findings, baseline_facts(findings), "baseline", ground.baseline, before)
    tailored = side_of(findings, tailored_facts(fitted), "tailored", fitted.machine, after)
    wanted = {phase.value for phase in TO_READY}
    costs: dict[str, int] = defaultdict(int)
    for row in findings.costs.rows:
        if row.symbol and row.phase in wanted:
            costs[row.symbol] += row.instructions
    return replace(baseline, symbol_costs=_dearest(costs)), tailored


def side_of(findings: Findings, kernel: KernelFacts, name: str, machine: Machine, found: Measured) -> Side:
    """The figures of one machine, with its conditions."""
    where = {row.function: row.file for row in findings.costs.rows}
    first = found.exact[0]
    folders: dict[str, int] = defaultdict(int)
    for row in first.functions:
        if row.phase in TO_READY:
            folders[folder_of(where.get(row.function, ""))] += row.instructions
    side = sides.make_side(
        kernel,
        name,
        found.exact,
        device_boot=found.exact[0],
        wall_boots=found.wall,
        loops=loop_table(machine.architecture),
        min_memory_bytes=found.min_memory_bytes,
        subsystems=_dearest(folders),
        initcalls=found.initcalls,
    )
    ground = findings.ground
    subject = Subject(machine, ground.table, ground.exercise, ground.natives)
    return replace(
        side,
        conditions=measure.conditions(subject, Clock.INSTRUCTIONS),
        wall_conditions=(*measure.conditions(subject, Clock.WALL), ("boots", str(len(found.wall)))),
    )


def folder_of(file: str) -> str:
    """The subsystem of a source file: its top folder, or two levels where that says little."""
    parts = file.split("/")
    if len(parts) < 2 or not file:
        return "other"
    return "/".join(parts[:2]) if parts[0] in _DEEP and len(parts) > 2 else parts[0]


def _dearest(costs: dict[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(costs.items(), key=lambda item: (-item[1], item[0])))


def baseline_facts(findings: Findings) -> KernelFacts:
    """The baseline's kernel file. It is packed already: its compressed size is its size."""
    kernel, kconfig = findings.ground.kernel, findings.tree.kconfig
    enabled = [name for name, value in findings.ground.config.items() if value == "y"]
    size = Path(kernel.vmlinuz).stat().st_size
    return KernelFacts(
        label=kernel.release,
        file="vmlinuz",
        symbols_y=len(enabled),
        symbols_prompted=sum(1 for name in enabled if kconfig.known(name) and kconfig.prompted(name)),
        bytes=size,
        compressed_bytes=size,
    )


def tailored_facts(fitted: Fitted) -> KernelFacts:
    """The tailored kernel file: what is booted, and its size packed with xz for comparison."""
    return KernelFacts(
        label=fitted.kernel.release,
        file="vmlinux",
        symbols_y=fitted.plan.total_y,
        symbols_prompted=fitted.plan.prompted_y,
        bytes=fitted.kernel.image_bytes,
        compressed_bytes=fitted.kernel.xz_bytes or len(lzma.compress(Path(fitted.kernel.image).read_bytes())),
    )


def ledger(baseline: Side, tailored: Side, made: Plan) -> tuple[Ledger, ...]:
    """The changes with their effects on the way to init: what was measured as a whole, then what the trace says of each
    symbol left out, which is expected and not measured alone."""
    rows = []
    if None not in (baseline.reset_instructions_net, baseline.init_instructions_net):
        assert baseline.reset_instructions_net is not None and baseline.init_instructions_net is not None
        assert tailored.reset_instructions_net is not None and tailored.init_instructions_net is not None
        before = baseline.reset_instructions_net - baseline.init_instructions_net
        after = tailored.reset_instructions_net - tailored.init_instructions_net
        rows.append(
            Ledger(
                change="uncompressed kernel file, entered directly",
                kind="machine",
                cause="platform",
                expected="no decompression before the kernel runs",
                measured_instructions=after - before,
                measured_bytes=tailored.kernel_bytes - baseline.kernel_bytes,
                verdict="better" if after < before else "worse" if after > before else "same",
            )
        )
        gain = tailored.init_instructions_net - baseline.init_instructions_net
        rows.append(
            Ledger(
                change=f"configuration: {baseline.symbols_y} symbols → {tailored.symbols_y}, no initial RAM disk",
                kind="config",
                cause="trace and catalogue",
                expected="less to initialise, nothing to load",
                measured_instructions=gain,
                measured_bytes=None,
                verdict="better" if gain < 0 else "worse" if gain > 0 else "same",
            )
        )
    kept = {choice.name for choice in made.choices if choice.value in ("y", "m")}
    rows += _expected(baseline.symbol_costs, kept)
    return tuple(rows)


def _expected(costs: Iterable[tuple[str, int]], kept: set[str], most: int = 40) -> list[Ledger]:
    dropped = [(name, cost) for name, cost in costs if name not in kept][:most]
    return [
        Ledger(
            change=f"{name} left out",
            kind="config",
            cause="not demanded",
            expected=f"{cost:,} instructions fewer to ready".replace(",", " "),
            measured_instructions=None,
            measured_bytes=None,
            verdict="undecided",
        )
        for name, cost in dropped
    ]
