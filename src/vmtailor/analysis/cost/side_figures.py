# SPDX-License-Identifier: Apache-2.0
"""Boots → the figures of one side. Pure: everything was measured before."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from vmtailor.analysis.cost import request_costs
from vmtailor.analysis.cost.loops import LoopNames, functions, plain
from vmtailor.model.boots.boot import Boot, FunctionCost, Phase
from vmtailor.model.boots.boot_cost import MemoryUse
from vmtailor.model.fit_run import EmulationLoop, Side

#: The phases between kernel entry and our PID 1, and between reset and it.
TO_INIT = (Phase.KERNEL,)
FROM_RESET = (Phase.FIRMWARE, Phase.KERNEL)
TO_READY = (Phase.KERNEL, Phase.INIT, Phase.START_UP)
#: Number of functions that a side keeps.
TOP_FUNCTIONS = 400


@dataclass(frozen=True)
class KernelFacts:
    """The facts of a kernel that are known without booting it."""

    label: str
    file: str
    symbols_y: int
    symbols_prompted: int
    bytes: int
    compressed_bytes: int


def executed(boot: Boot, phases: Iterable[Phase]) -> int:
    """Return instructions executed in some phases, user and kernel, the exercise's client left out."""
    wanted = set(phases)
    return sum(p.kernel + p.user for p in boot.phases if p.phase in wanted)


def loops_of(boot: Boot, table: Sequence[LoopNames], phases: Iterable[Phase]) -> tuple[EmulationLoop, ...]:
    """Return the instructions of each named loop in some phases of one boot; loops that never ran are left out."""
    wanted = set(phases)
    cost: dict[str, int] = {}
    for row in boot.functions:
        if row.phase in wanted:
            name = plain(row.function)
            cost[name] = cost.get(name, 0) + row.instructions
    found = []
    for loop in table:
        total = sum(cost.get(function, 0) for function in loop.functions)
        if total:
            found.append(EmulationLoop(loop.name, total, loop.reason))
    return tuple(found)


def port_accesses_of(boot: Boot, table: Sequence[LoopNames], phases: Iterable[Phase]) -> int:
    """Return accesses to ports of all named loops in some phases of one boot."""
    wanted, names = set(phases), functions(table)
    return sum(row.port_accesses for row in boot.functions if row.phase in wanted and plain(row.function) in names)


def spread(values: Sequence[float]) -> float:
    """Return (max - min) / median; 0.0 when all agree, or there is nothing to compare."""
    middle = statistics.median(values) if values else 0.0
    return (max(values) - min(values)) / middle if middle else 0.0


def _virtual_us(boots: Sequence[Boot], to: str) -> list[float]:
    """Return the time from kernel entry to a milestone in each boot that has it. Programs with many threads differ
    between boots."""
    found = []
    for boot in boots:
        start, end = boot.milestone("kernel"), boot.milestone(to)
        if start is None or end is None or start.virtual_ns is None or end.virtual_ns is None:
            continue
        found.append((end.virtual_ns - start.virtual_ns) / 1000)
    return found


def _wall_us(boots: Sequence[Boot], name: str) -> float | None:
    found = [m.wall_s for boot in boots if (m := boot.milestone(name)) is not None and m.wall_s is not None]
    return statistics.median(found) * 1e6 if found else None


def _reached(boots: Sequence[Boot], mark: str, phases: Iterable[Phase]) -> list[int]:
    wanted = tuple(phases)
    return [executed(boot, wanted) for boot in boots if boot.milestone(mark) is not None]


def _median_int(values: Sequence[int]) -> int | None:
    return int(statistics.median(values)) if values else None


def top_functions(boot: Boot) -> tuple[FunctionCost, ...]:
    """Return the functions that a boot spent most on, those first."""
    return tuple(sorted(boot.functions, key=lambda row: (-row.instructions, row.function, row.phase))[:TOP_FUNCTIONS])


def unmeasured(name: str, kernel: KernelFacts) -> Side:
    """Return a side without figures: the facts of its kernel, which may not work."""
    return Side(
        name=name,
        kernel=kernel.label,
        kernel_file=kernel.file,
        symbols_y=kernel.symbols_y,
        symbols_prompted=kernel.symbols_prompted,
        kernel_bytes=kernel.bytes,
        kernel_compressed_bytes=kernel.compressed_bytes,
        boots=0,
    )


def make_side(
    kernel: KernelFacts,
    name: str,
    boots: Sequence[Boot],
    *,
    device_boot: Boot | None,
    wall_boots: Sequence[Boot],
    loops: Sequence[LoopNames],
    min_memory_bytes: int | None,
    memory: MemoryUse | None = None,
    subsystems: tuple[tuple[str, int], ...] = (),
    initcalls: tuple[tuple[str, int], ...] = (),
) -> Side:
    """Return one side's figures, as medians with the spread of each. They come from its boots on the instruction clock
    (at least one), a boot with device accesses counted, and boots on the wall clock."""
    init, reset, ready = (
        _reached(boots, "init", TO_INIT),
        _reached(boots, "init", FROM_RESET),
        _reached(boots, "ready", TO_READY),
    )
    first = boots[0]
    to_init = loops_of(first, loops, TO_INIT)
    from_reset = loops_of(first, loops, FROM_RESET)
    requests = [cost for boot in boots if (cost := request_costs.of_boot(boot)) is not None]
    init_us, ready_us = _virtual_us(boots, "init"), _virtual_us(boots, "ready")
    spreads = [
        ("init_instructions", spread(init)),
        ("ready_instructions", spread(ready)),
        ("init_virtual_us", spread(init_us)),
        ("ready_virtual_us", spread(ready_us)),
    ]
    if requests:
        spreads.append(("request_kernel_instructions", spread([cost.kernel for cost in requests])))
    accesses = accesses_net = None
    if device_boot is not None:
        accesses = sum(
            (p.port_accesses or 0) + (p.mmio_accesses or 0) for p in device_boot.phases if p.phase in TO_READY
        )
        accesses_net = accesses - port_accesses_of(device_boot, loops, TO_READY)
    init_middle, reset_middle = _median_int(init), _median_int(reset)
    return replace(
        unmeasured(name, kernel),
        boots=len(boots),
        init_instructions=init_middle,
        init_instructions_net=None if init_middle is None else init_middle - sum(x.instructions for x in to_init),
        reset_instructions=reset_middle,
        reset_instructions_net=None if reset_middle is None else reset_middle - sum(x.instructions for x in from_reset),
        ready_instructions=_median_int(ready),
        init_virtual_us=statistics.median(init_us) if init_us else None,
        ready_virtual_us=statistics.median(ready_us) if ready_us else None,
        device_accesses=accesses,
        device_accesses_net=accesses_net,
        requests=first.container.requests if first.container is not None else 0,
        request_kernel_instructions=statistics.median(cost.kernel for cost in requests) if requests else None,
        request_user_instructions=statistics.median(cost.user for cost in requests) if requests else None,
        min_memory_bytes=min_memory_bytes,
        memory=memory,
        init_wall_us=_wall_us(wall_boots, "init"),
        ready_wall_us=_wall_us(wall_boots, "ready"),
        phases=first.phases,
        functions=top_functions(first),
        subsystems=subsystems,
        initcalls=initcalls,
        loops=from_reset,
        spread=tuple(spreads),
    )
