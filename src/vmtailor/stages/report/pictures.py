# SPDX-License-Identifier: Apache-2.0
"""Draw two boots by phase and the memory of both machines, as bars in percent of a width."""

from __future__ import annotations

from dataclasses import dataclass

from vmtailor.base import figures
from vmtailor.model.boots.boot import Phase, PhaseCounts
from vmtailor.model.boots.boot_cost import MemoryPart
from vmtailor.model.fit_run import Side

#: Meaning of each phase, for the legend.
MEANING = {
    Phase.FIRMWARE: "reset to kernel entry, with decompression",
    Phase.KERNEL: "kernel entry to the first instruction of our init",
    Phase.INIT: "our init, until the entry point is executed",
    Phase.START_UP: "the container starts, until the first good answer",
    Phase.SETTLE: "no load yet: what the boot left running in the background ends",
    Phase.LOAD: "the requests of the exercise",
    Phase.STOP: "from the stop signal to the end",
}


@dataclass(frozen=True)
class TimelineSegment:
    """One rectangle. `x` and `width` in percent; `kind` is its colour class; `label` is empty where none fits."""

    x: float
    width: float
    kind: str
    tip: str
    label: str = ""


@dataclass(frozen=True)
class BootBar:
    """One boot. `phases` above, who executed them (kernel, user, the exercise's client) as a strip below.
    `hatched`: the part of the kernel phase that only emulation causes. `ticks`: (x in percent, label) of the axis."""

    name: str
    total: int
    phases: tuple[TimelineSegment, ...]
    owners: tuple[TimelineSegment, ...]
    hatched: TimelineSegment | None
    ticks: tuple[tuple[float, str], ...]
    width: float


@dataclass(frozen=True)
class BootPicture:
    """Both boots on one scale, and the smaller one once more on a scale of its own (`zoomed`, `times` larger)."""

    bars: tuple[BootBar, ...]
    zoomed: BootBar | None
    times: str


def boot_picture(baseline: Side, tailored: Side) -> BootPicture | None:
    """Return the picture of two sides; None where no boot counted anything."""
    totals = (_instructions(baseline), _instructions(tailored))
    scale = max(totals)
    if min(totals) <= 0:
        return None
    bars = (_bar(baseline, scale), _bar(tailored, scale))
    if totals[1] > scale / 2:
        return BootPicture(bars, None, "")
    return BootPicture(bars, _bar(tailored, totals[1]), f"{scale / totals[1]:.0f}")


def cost(phase: PhaseCounts) -> int:
    """Return all instructions of a phase, the client's too."""
    return phase.kernel + phase.user + phase.client_kernel + phase.client_user


def _instructions(side: Side) -> int:
    return sum(cost(phase) for phase in side.phases)


def _bar(side: Side, scale: int) -> BootBar:
    phases, owners, at = [], [], 0.0
    hatched = None
    for phase in side.phases:
        width = 100 * cost(phase) / scale
        label = phase.phase.value if width > 2.2 + 0.85 * len(phase.phase.value) else ""
        tip = f"{side.name}, {phase.phase.value}: {figures.grouped(cost(phase))} instructions\n{MEANING[phase.phase]}"
        phases.append(TimelineSegment(x=at, width=width, kind=phase.phase.value, tip=tip, label=label))
        if phase.phase is Phase.KERNEL and side.loops:
            in_loops = min(sum(loop.instructions for loop in side.loops), cost(phase))
            names = ", ".join(loop.name for loop in side.loops)
            text = f"{side.name}: {figures.grouped(in_loops)} of these only because the machine is emulated\n{names}"
            hatched = TimelineSegment(at, 100 * in_loops / scale, "hatched", text)
        inner = at
        for kind, value in (
            ("by-kernel", phase.kernel),
            ("by-user", phase.user),
            ("by-client", phase.client_kernel + phase.client_user),
        ):
            share = 100 * value / scale
            if share > 0:
                who = kind.removeprefix("by-")
                text = f"{side.name}, {phase.phase.value}, {who}: {figures.grouped(value)} instructions"
                owners.append(TimelineSegment(inner, share, kind, text))
                inner += share
        at += width
    return BootBar(
        name=side.name,
        total=_instructions(side),
        phases=tuple(phases),
        owners=tuple(owners),
        hatched=hatched,
        ticks=_ticks(scale),
        width=at,
    )


def _round(mark: float) -> str:
    size, unit = next(((s, u) for s, u in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if mark >= s), (1.0, ""))
    return f"{mark / size:g}{figures.NARROW_SPACE}{unit}".strip()


def _ticks(scale: int) -> tuple[tuple[float, str], ...]:
    step = 10.0 ** len(str(scale))
    while scale / step < 4:
        step /= 2 if str(step)[0] in "12" else 2.5
    marks = [i * step for i in range(int(scale / step) + 1)]
    return tuple((100 * mark / scale, "0" if mark == 0 else _round(mark)) for mark in marks)


#: Colour class of each part; what is not here has that of the rest.
_KINDS = {
    "kernel": "kernel",
    "page descriptors": "init",
    "reserved": "firmware",
    "firmware": "firmware",
    "kernel's objects": "start-up",
    "container": "load",
    "caches": "settle",
    "free": "free",
}
_REST = "stop"


@dataclass(frozen=True)
class MemoryBar:
    """The smallest machine of one side. `parts`: as segments of the larger one's width."""

    name: str
    machine_bytes: int
    parts: tuple[TimelineSegment, ...]


@dataclass(frozen=True)
class MemoryRow:
    """One part in both machines; None where a machine has no such part, or is not known. `kind`: its colour class."""

    name: str
    what: str
    kind: str
    bytes: tuple[int | None, int | None]


@dataclass(frozen=True)
class MemoryPicture:
    bars: tuple[MemoryBar, ...]
    rows: tuple[MemoryRow, ...]


def memory_picture(baseline: Side, tailored: Side) -> MemoryPicture | None:
    """Return the picture of two sides; None where neither is known."""
    known = [(side.name, side.memory) for side in (baseline, tailored) if side.memory is not None]
    if not known:
        return None
    scale = max(memory.machine_bytes for _, memory in known)
    bars = tuple(MemoryBar(name, memory.machine_bytes, _segments(name, memory.parts, scale)) for name, memory in known)
    return MemoryPicture(bars, memory_rows(baseline, tailored))


def memory_rows(baseline: Side, tailored: Side) -> tuple[MemoryRow, ...]:
    """Return every part of either machine."""
    sides = [{} if side.memory is None else {p.name: p for p in side.memory.parts} for side in (baseline, tailored)]
    # Both orders agree; a part that one of them lacks stands where the other has it.
    names = [name for name in _KINDS if any(name in side for side in sides)]
    names += [name for side in sides for name in side if name not in names]
    return tuple(
        MemoryRow(
            name,
            next(side[name].what for side in sides if name in side),
            _KINDS.get(name, _REST),
            (_bytes(sides[0], name), _bytes(sides[1], name)),
        )
        for name in dict.fromkeys(names)
    )


def _bytes(parts: dict[str, MemoryPart], name: str) -> int | None:
    return parts[name].bytes if name in parts else None


def _segments(side: str, parts: tuple[MemoryPart, ...], scale: int) -> tuple[TimelineSegment, ...]:
    segments, at = [], 0.0
    for part in parts:
        width = 100 * max(0, part.bytes) / scale
        label = part.name if width > 2.2 + 0.85 * len(part.name) else ""
        tip = f"{side}, {part.name}: {figures.memory_bytes(part.bytes)}\n{part.what}"
        segments.append(TimelineSegment(x=at, width=width, kind=_KINDS.get(part.name, _REST), tip=tip, label=label))
        at += width
    return tuple(segments)
