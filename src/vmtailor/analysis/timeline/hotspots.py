# SPDX-License-Identifier: Apache-2.0
"""Rank what to look at first: every kind of item by its own time, with its share of the kernel and of the whole
boot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from vmtailor.analysis.bootlog.silences import MIN_GAP_US, without_inner
from vmtailor.analysis.timeline.durations import SLOW_CONSOLE_US
from vmtailor.analysis.timeline.sanity import checked_spots, within_boot
from vmtailor.model.boots.timeline import GapSpan, Hotspot, Initcall, Path, PhaseName, Probe, Timeline

#: Contradictions between a hot spot and the whole that are named.
MOST_NAMED = 5
#: Rows kept; the rest is in the lists they come from.
MOST = 200


def rank(timeline: Timeline) -> Timeline:
    """Return the timeline with its hot spots: the longest own time first, of units the longest."""
    spots = [*_calls(timeline), *_gaps(timeline), *_units(timeline), *_processes(timeline), *_console(timeline)]
    spots, contradictions = checked_spots(timeline, spots)
    spots.sort(key=lambda spot: (-weight(spot), spot.kind, spot.name))
    warnings = (*timeline.warnings, *contradictions[:MOST_NAMED])
    return msgspec.structs.replace(timeline, hotspots=tuple(spots[:MOST]), warnings=warnings)


def weight(spot: Hotspot) -> int:
    """Return what a hot spot is ranked by. Units overlap, so that little of a long one may be its own: it counts
    whole."""
    if spot.kind == "unit" and spot.duration_us is not None:
        return max(spot.duration_us, spot.exclusive_us)
    return spot.exclusive_us


def _share(part: int, whole: int | None) -> float | None:
    return round(part / whole, 6) if whole else None


def _in_kernel(timeline: Timeline, start_us: int | None, end_us: int | None) -> bool:
    kernel = timeline.phase(PhaseName.KERNEL)
    if kernel is None or kernel.start_us is None or kernel.end_us is None or start_us is None or end_us is None:
        return False
    return start_us >= kernel.start_us and end_us <= kernel.end_us


def _calls(timeline: Timeline) -> Iterator[Hotspot]:
    rows: list[tuple[str, Initcall | Probe]] = []
    for kind, items in (("initcall", timeline.initcalls), ("probe", timeline.probes)):
        timed = [row for row in items if row.exclusive_us]
        timed.sort(key=lambda row: -(row.exclusive_us or 0))
        rows.extend((kind, row) for row in timed[:MOST])
    for kind, row in rows:
        own = row.exclusive_us or 0
        inside = _in_kernel(timeline, row.start_us, row.end_us)
        name = f"{row.name} [{row.module}]" if row.module else row.name
        yield Hotspot(
            kind=kind,
            name=name,
            exclusive_us=own,
            share_kernel=_share(own, timeline.kernel_us) if inside else None,
            share_total=_share(own, timeline.total_us),
            advice=(),
            start_us=row.start_us,
            occurrence=row.occurrence,
            path=row.path,
            duration_us=row.duration_us,
        )


def _of_kernel(timeline: Timeline, gaps: Sequence[GapSpan]) -> int:
    """Return the own time of silences up to the kernel's end, beyond which one that began before it may reach."""
    kernel = timeline.phase(PhaseName.KERNEL)
    end = kernel.end_us if kernel is not None else None
    return sum(gap.own_us if end is None else min(gap.own_us, max(0, end - gap.start_us)) for gap in gaps)


def _gaps(timeline: Timeline) -> Iterator[Hotspot]:
    """Yield silences, without what initcalls and probes account for. Those of one kind, in one phase, are one row; what
    nothing explains is named by the message before."""
    groups: dict[tuple[str, str, str, int], list[GapSpan]] = {}
    for gap in without_inner(timeline.gaps):
        if gap.own_us >= MIN_GAP_US:
            alone = 0 if gap.kind else gap.start_us
            groups.setdefault((gap.name, gap.phase, gap.path, alone), []).append(gap)
    for (name, phase, path, _), gaps in groups.items():
        own = sum(gap.own_us for gap in gaps)
        yield Hotspot(
            kind="gap",
            name=name,
            exclusive_us=own,
            share_kernel=_share(_of_kernel(timeline, gaps), timeline.kernel_us) if phase == PhaseName.KERNEL else None,
            share_total=_share(own, timeline.total_us),
            advice=(),
            start_us=gaps[0].start_us,
            occurrence=None,
            path=path,
            duration_us=sum(gap.end_us - gap.start_us for gap in gaps),
            times=len(gaps),
        )


def _units(timeline: Timeline) -> Iterator[Hotspot]:
    for unit in timeline.units:
        waited = unit.path_us if unit.critical else unit.exclusive_us
        own = waited if waited is not None else unit.duration_us
        if not within_boot(unit, timeline.shown_end_us):
            continue  # once the machine is up, its units start as they please
        if own or (unit.duration_us and own is not None):
            known = waited is not None
            path = Path.CRITICAL if unit.critical else (Path.BESIDE if unit.critical is False else Path.UNKNOWN)
            yield Hotspot(
                kind="unit",
                name=unit.name,
                exclusive_us=own,
                share_kernel=None,
                share_total=_share(own, timeline.total_us) if known else None,
                advice=(),
                start_us=unit.start_us,
                occurrence=None,
                path=path.value,
                duration_us=unit.duration_us,
            )


def _processes(timeline: Timeline) -> Iterator[Hotspot]:
    total: dict[str, int] = {}
    for process in timeline.processes:
        if not process.observer and process.exclusive_us:
            total[process.name] = total.get(process.name, 0) + process.exclusive_us
        if not process.observer and process.waiting_us:
            waited = f"{process.name}, waiting for disks"
            total[waited] = total.get(waited, 0) + process.waiting_us
    for name, own in total.items():
        yield Hotspot(
            kind="process", name=name, exclusive_us=own, share_kernel=None, share_total=_share(own, timeline.total_us)
        )


def _console(timeline: Timeline) -> Iterator[Hotspot]:
    console = timeline.console
    if console and console.cost_us and console.us_per_char is not None and console.us_per_char >= SLOW_CONSOLE_US:
        yield Hotspot(
            kind="console",
            name="printing to the console",
            exclusive_us=console.cost_us,
            share_kernel=None if console.kernel_us is None else _share(console.kernel_us, timeline.kernel_us),
            share_total=_share(console.cost_us, timeline.total_us),
            advice=(),
            start_us=None,
            occurrence=None,
            path=Path.CRITICAL.value,
        )
