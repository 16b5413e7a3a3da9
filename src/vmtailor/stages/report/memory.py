# SPDX-License-Identifier: Apache-2.0
"""Where the memory of both machines goes, as bars on one scale."""

from __future__ import annotations

from dataclasses import dataclass

from vmtailor.base import figures
from vmtailor.model.boots.boot_cost import MemoryPart
from vmtailor.model.fit import Side
from vmtailor.stages.report.timeline import TimelineSegment

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


def picture(baseline: Side, tailored: Side) -> MemoryPicture | None:
    """The picture of two sides; None where neither is known."""
    known = [(side.name, side.memory) for side in (baseline, tailored) if side.memory is not None]
    if not known:
        return None
    scale = max(memory.machine_bytes for _, memory in known)
    bars = tuple(MemoryBar(name, memory.machine_bytes, _segments(name, memory.parts, scale)) for name, memory in known)
    return MemoryPicture(bars, rows(baseline, tailored))


def rows(baseline: Side, tailored: Side) -> tuple[MemoryRow, ...]:
    """Every part of either machine."""
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
        segments.append(TimelineSegment(at, width, _KINDS.get(part.name, _REST), tip, label))
        at += width
    return tuple(segments)
