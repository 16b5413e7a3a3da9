# SPDX-License-Identifier: Apache-2.0
"""What to look at first: every kind of item by its own time, with its share of the kernel and of the whole boot."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

import msgspec

from vmtailor.analysis.bootlog.observed import MIN_GAP_US, Gap
from vmtailor.analysis.timeline.durations import SLOW_CONSOLE_US
from vmtailor.model.boots.timeline import Hotspot, Initcall, Path, PhaseName, Probe, Timeline

#: Rows kept; the rest is in the lists they come from.
MOST = 200
#: Shorter runs leave a gap a gap.
LEAST_RUN_US = 100


def rank(timeline: Timeline, gaps: Sequence[Gap]) -> Timeline:
    """The timeline with its hot spots, the longest first."""
    spots = [*_calls(timeline), *_gaps(timeline, gaps), *_units(timeline), *_processes(timeline), *_console(timeline)]
    spots.sort(key=lambda spot: (-spot.exclusive_us, spot.kind, spot.name))
    return msgspec.structs.replace(timeline, hotspots=tuple(spots[:MOST]))


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
            kind,
            name,
            own,
            _share(own, timeline.kernel_us) if inside else None,
            _share(own, timeline.total_us),
            (),
            row.start_us,
            row.occurrence,
            row.path,
        )


def _gaps(timeline: Timeline, gaps: Sequence[Gap]) -> Iterator[Hotspot]:
    """Silences of the kernel that no initcall or probe accounts for, named by the message before."""
    kernel = timeline.phase(PhaseName.KERNEL)
    if kernel is None:
        return
    covered = _covered(timeline)
    for gap in gaps:
        if gap.start_us < (kernel.start_us or 0) or (kernel.end_us is not None and gap.end_us > kernel.end_us):
            continue
        own = gap.end_us - gap.start_us - _inside(covered, gap.start_us, gap.end_us)
        if own < MIN_GAP_US:
            continue
        yield Hotspot(
            "gap",
            f"after: {gap.text}",
            own,
            _share(own, timeline.kernel_us),
            _share(own, timeline.total_us),
            (),
            gap.start_us,
            None,
            Path.CRITICAL.value,
        )


def _covered(timeline: Timeline) -> list[tuple[int, int]]:
    """The stretches in which an initcall or a probe of some length ran, apart from each other and in their order."""
    runs = sorted(
        (row.start_us, row.end_us)
        for items in (timeline.initcalls, timeline.probes)
        for row in items
        if row.start_us is not None and row.end_us is not None and row.end_us - row.start_us >= LEAST_RUN_US
    )
    merged: list[tuple[int, int]] = []
    for start, end in runs:
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _inside(stretches: Sequence[tuple[int, int]], start_us: int, end_us: int) -> int:
    """How much of a span lies in the stretches."""
    total = 0
    for start, end in stretches[max(0, bisect_right(stretches, (start_us, start_us)) - 1) :]:
        if start >= end_us:
            break
        total += max(0, min(end, end_us) - max(start, start_us))
    return total


def _units(timeline: Timeline) -> Iterator[Hotspot]:
    for unit in timeline.units:
        own = unit.exclusive_us if unit.exclusive_us is not None else unit.duration_us
        if own:
            known = unit.exclusive_us is not None
            path = Path.CRITICAL if unit.critical else (Path.BESIDE if unit.critical is False else Path.UNKNOWN)
            yield Hotspot(
                "unit",
                unit.name,
                own,
                None,
                _share(own, timeline.total_us) if known else None,
                (),
                unit.start_us,
                None,
                path.value,
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
        yield Hotspot("process", name, own, None, _share(own, timeline.total_us))


def _console(timeline: Timeline) -> Iterator[Hotspot]:
    console = timeline.console
    if console and console.cost_us and console.us_per_char is not None and console.us_per_char >= SLOW_CONSOLE_US:
        yield Hotspot(
            "console",
            "printing to the console",
            console.cost_us,
            _share(console.cost_us, timeline.kernel_us),
            _share(console.cost_us, timeline.total_us),
            (),
            None,
            None,
            Path.CRITICAL.value,
        )
