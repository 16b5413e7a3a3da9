# SPDX-License-Identifier: Apache-2.0
"""Both sides measured, each once for the same bytes, and the figures of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vmtailor.analysis.changes.effects import Samples, TrialRun, judge
from vmtailor.analysis.cost import loops, side_figures, waterfall
from vmtailor.analysis.cost.attribution import Attribution
from vmtailor.analysis.cost.loops import LoopNames
from vmtailor.analysis.cost.plugin_counts import SymbolTable
from vmtailor.analysis.cost.side_figures import TO_READY, KernelFacts
from vmtailor.model.architecture import named
from vmtailor.model.boots.boot import Boot, Phase
from vmtailor.model.change import Cause, Change, ChangeKind, Figure, Reason, Setting
from vmtailor.model.fit_run import Part, Side
from vmtailor.model.machine import Clock, Machine
from vmtailor.pipeline import measured_machines
from vmtailor.pipeline.measured_machines import Ahead, Measured, MeasureRequest
from vmtailor.pipeline.subject import Built, Findings, Fitted, Subject
from vmtailor.stages import measure

BASELINE, TAILORED = "the baseline", "the tailored machine"


@dataclass(frozen=True)
class Sides:
    """Both machines: all their boots, and the figures of each."""

    before: Measured
    after: Measured
    baseline: Side
    tailored: Side


def baseline_asked(subject: Subject[Any], known: Boot | None = None) -> MeasureRequest:
    """Return the request to measure the baseline. `known`: a counted boot of it, as a trace has one."""
    return replace(subject.asked(subject.baseline, subject.table, BASELINE), known=known)


def tailored_asked(subject: Subject[Any], fitted: Built) -> MeasureRequest:
    """Return the request to measure the fitted machine, compared with the baseline."""
    beside = baseline_asked(subject)
    return subject.asked(fitted.machine, table_of(fitted), TAILORED, beside, network=fitted.plan.network)


def table_of(fitted: Built) -> SymbolTable:
    """Read the symbols of a kernel that was built."""
    return SymbolTable.parse(Path(fitted.kernel.system_map).read_text(), fitted.machine.architecture)


def both_sides(findings: Findings[Any], fitted: Built, begun: Ahead | None = None) -> Sides:
    """Measure baseline and fitted machine with the same machine type, memory and root. `begun`: machines that may
    already be being counted."""
    subject, costs = findings.subject, findings.costs
    before, after = measured_machines.both(baseline_asked(subject), tailored_asked(subject, fitted), begun)
    where = files_of(costs) if costs is not None else None
    baseline = side_of(baseline_facts(findings), "baseline", subject.baseline, before, where)
    tailored = side_of(tailored_facts(fitted), "tailored", fitted.machine, after, where)
    if costs is not None:
        baseline = replace(baseline, symbol_costs=by_symbol(costs))
    return Sides(before, after, baseline, tailored)


def files_of(costs: Attribution) -> dict[str, str]:
    """Return function → the file of the source tree that it is in."""
    return {row.function: row.file for row in costs.rows}


def by_symbol(costs: Attribution) -> tuple[tuple[str, int], ...]:
    """Return configuration symbol → instructions from kernel entry to ready, the most first."""
    wanted = {phase.value for phase in TO_READY}
    found: dict[str, int] = defaultdict(int)
    for row in costs.rows:
        if row.symbol and row.phase in wanted:
            found[row.symbol] += row.instructions
    return _most_first(found)


def by_folder(found: Measured, where: Mapping[str, str]) -> tuple[tuple[str, int], ...]:
    """Return folder of the source tree → instructions from kernel entry to ready, the most first. `where`: function →
    its file."""
    folders: dict[str, int] = defaultdict(int)
    for row in found.exact[0].functions:
        if row.phase in TO_READY:
            folders[waterfall.folder_of(where.get(row.function, ""))] += row.instructions
    return _most_first(folders)


def side_of(kernel: KernelFacts, name: str, machine: Machine, found: Measured, where: Mapping[str, str] | None) -> Side:
    """Return the figures of one machine, with its conditions. `where`: function → its file, for costs by folder."""
    side = side_figures.make_side(
        kernel,
        name,
        found.exact,
        device_boot=found.exact[0],
        wall_boots=found.wall,
        loops=loops.table(machine.architecture),
        min_memory_bytes=found.min_memory_bytes,
        memory=found.memory,
        subsystems=() if where is None else by_folder(found, where),
        initcalls=found.initcalls,
    )
    container = found.exact[0].container
    return replace(
        side,
        loads=container.loads if container is not None else (),
        conditions=measure.conditions(machine, Clock.INSTRUCTIONS),
        wall_conditions=(*measure.conditions(machine, Clock.WALL), ("boots", str(len(found.wall)))),
    )


def _most_first(costs: dict[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(costs.items(), key=lambda item: (-item[1], item[0])))


def baseline_facts(findings: Findings[Any]) -> KernelFacts:
    """Describe the baseline's kernel file. It is packed already: its compressed size is its size."""
    subject, kconfig = findings.subject, findings.tree.kconfig
    enabled = [name for name, value in subject.config.items() if value == "y"]
    size = Path(subject.baseline.kernel or "").stat().st_size
    return KernelFacts(
        label=subject.kernel.release,
        file="vmlinuz",
        symbols_y=len(enabled),
        symbols_prompted=sum(1 for name in enabled if kconfig.known(name) and kconfig.prompted(name)),
        bytes=size,
        compressed_bytes=size,
    )


def tailored_facts(fitted: Built) -> KernelFacts:
    """Return the tailored kernel file that is booted, and its size packed with xz for comparison."""
    return KernelFacts(
        label=fitted.kernel.release,
        file=Path(named(fitted.machine.architecture).kernel.file).name,
        symbols_y=fitted.plan.total_y,
        symbols_prompted=fitted.plan.prompted_y,
        bytes=fitted.kernel.image_bytes,
        compressed_bytes=fitted.kernel.packed_bytes,
    )


def ledger(costs: Attribution, fitted: Fitted, sides: Sides) -> tuple[tuple[Change, ...], tuple[Part, ...]]:
    """Return the ledger: the changes that were measured as one, judged from the boots of both machines, and the rest.
    `costs`: those of the baseline's code."""
    table = loops.table(fitted.machine.architecture)
    trace = waterfall.traced(costs, table)
    first, last = sides.before.exact, sides.after.exact
    rows = (
        _direct(sides, table),
        *waterfall.subsystems(fitted.plan, trace, first, last, table),
    )
    return rows, waterfall.remainder(fitted.plan, trace, first[0], last[0], table)


def _direct(sides: Sides, table: Sequence[LoopNames]) -> Change:
    """Return the kernel file: a packaged one unpacks itself before the kernel runs, ours is entered as it lies."""
    change = Change(
        "direct-kernel",
        "the kernel file is not compressed, and is entered directly",
        (Setting(ChangeKind.MACHINE, "kernel", sides.tailored.kernel_file, sides.baseline.kernel_file),),
        (Reason(Cause.PLATFORM, "platform:direct-boot", "nothing has to be unpacked before the kernel runs"),),
    )
    runs = []
    for side, found in ((sides.baseline, sides.before), (sides.tailored, sides.after)):
        before_kernel = tuple(float(_before_kernel(boot, table)) for boot in found.exact)
        size = Samples(Figure.KERNEL_BYTES, (float(side.kernel_bytes),), exact=True)
        runs.append(TrialRun(samples=(Samples(Figure.BEFORE_KERNEL, before_kernel, exact=True), size)))
    return judge(change, *runs)


def _before_kernel(boot: Boot, table: Sequence[LoopNames]) -> int:
    phases = (Phase.FIRMWARE,)
    loops_there = side_figures.loops_of(boot, table, phases)
    return side_figures.executed(boot, phases) - sum(loop.instructions for loop in loops_there)
