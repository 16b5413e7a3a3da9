# SPDX-License-Identifier: Apache-2.0
"""What was counted in a boot, as figures: instructions of the kernel, also by the subsystem whose source they are of;
those of programs; accesses to devices. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from vmtailor.analysis.cost.plugin_counts import FIRMWARE
from vmtailor.analysis.cost.waterfall import OTHER
from vmtailor.bench.analysis.figure_parts import part
from vmtailor.bench.model.results import BenchFigure
from vmtailor.model.boots.boot import Boot, Phase

#: What the machine ran before its kernel.
BEFORE = "firmware"


def counts(found: Boot, phases: Sequence[Phase]) -> tuple[float, float, float]:
    """Instructions of the kernel and of user programs, and accesses to devices, in some phases."""
    rows = [row for row in found.phases if row.phase in phases]
    devices = sum((row.port_accesses or 0) + (row.mmio_accesses or 0) for row in rows)
    return float(sum(row.kernel for row in rows)), float(sum(row.user for row in rows)), float(devices)


def by_subsystem(found: Boot, phases: Sequence[Phase], subsystems: Mapping[str, str]) -> dict[str, float]:
    """Subsystem → instructions of the kernel in some phases; they add up to all of them. `subsystems`: function → its
    subsystem; nothing is told apart where that is empty."""
    if not subsystems:
        return {}
    sums: dict[str, float] = defaultdict(float)
    for row in found.functions:
        if row.phase in phases:
            name = BEFORE if row.function == FIRMWARE else subsystems.get(row.function, OTHER)
            sums[name] += row.instructions
    sums[OTHER] += counts(found, phases)[0] - sum(sums.values())
    return {name: value for name, value in sums.items() if value}


def part_figures(whole: str, parts: Mapping[str, float]) -> Iterable[BenchFigure]:
    """The parts of a figure of instructions, as figures."""
    return (BenchFigure(part(whole, name), value, "instructions") for name, value in sorted(parts.items()) if value)
