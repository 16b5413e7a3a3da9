# SPDX-License-Identifier: Apache-2.0
"""Two boots as bars by phase: positions in percent of the width, so that a picture grows and shrinks with the page."""

from __future__ import annotations

from dataclasses import dataclass

from vmtailor.base import figures
from vmtailor.model.boots.boot import Phase, PhaseCounts
from vmtailor.model.fit import Side

#: What each phase is, for the legend.
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
class Bar:
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
class Picture:
    """Both boots on one scale, and the smaller one once more on a scale of its own (`zoomed`, `times` larger)."""

    bars: tuple[Bar, ...]
    zoomed: Bar | None
    times: str


def picture(baseline: Side, tailored: Side) -> Picture | None:
    """The picture of two sides; None where no boot counted anything."""
    totals = (_total(baseline), _total(tailored))
    scale = max(totals)
    if min(totals) <= 0:
        return None
    bars = (_bar(baseline, scale), _bar(tailored, scale))
    if totals[1] > scale / 2:
        return Picture(bars, None, "")
    return Picture(bars, _bar(tailored, totals[1]), f"{scale / totals[1]:.0f}")


def cost(phase: PhaseCounts) -> int:
    """All instructions of a phase, the client's too."""
    return phase.kernel + phase.user + phase.client_kernel + phase.client_user


def _total(side: Side) -> int:
    return sum(cost(phase) for phase in side.phases)


def _bar(side: Side, scale: int) -> Bar:
    phases, owners, at = [], [], 0.0
    hatched = None
    for phase in side.phases:
        width = 100 * cost(phase) / scale
        label = phase.phase.value if width > 2.2 + 0.85 * len(phase.phase.value) else ""
        tip = f"{side.name}, {phase.phase.value}: {figures.grouped(cost(phase))} instructions\n{MEANING[phase.phase]}"
        phases.append(TimelineSegment(at, width, phase.phase.value, tip, label))
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
    return Bar(side.name, _total(side), tuple(phases), tuple(owners), hatched, _ticks(scale), at)


def _round(mark: float) -> str:
    size, unit = next(((s, u) for s, u in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if mark >= s), (1.0, ""))
    return f"{mark / size:g}{figures.NARROW_SPACE}{unit}".strip()


def _ticks(scale: int) -> tuple[tuple[float, str], ...]:
    step = 10.0 ** len(str(scale))
    while scale / step < 4:
        step /= 2 if str(step)[0] in "12" else 2.5
    marks = [i * step for i in range(int(scale / step) + 1)]
    return tuple((100 * mark / scale, "0" if mark == 0 else _round(mark)) for mark in marks)
