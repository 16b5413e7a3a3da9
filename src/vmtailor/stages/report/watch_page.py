# SPDX-License-Identifier: Apache-2.0
"""Write watched machines as one HTML page: a chart for each panel, machines side by side on one scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from vmtailor.analysis.watches import rates
from vmtailor.analysis.watches.panels import Panel, PanelLine, PanelUnit, panels
from vmtailor.base import figures, pages
from vmtailor.base.text import plural
from vmtailor.model.machine import Clock
from vmtailor.model.machine_watch import MachineWatch, WatchedKind
from vmtailor.stages.report.load_pictures import HEIGHT, WIDTH, LoadCurve, LoadPicture

#: Colours that lines have, in turn. Marks with a line of their own on a chart.
_COLOURS, _MOST_MOMENTS = 8, 60
#: Heads of the figures of a container.
CONTAINER_HEADS = ("Processor time", "Most memory", "Disk", "Network")


@dataclass(frozen=True)
class ShownContainer:
    """A container with its figures over the whole watch."""

    id: str
    engine: str
    command: str
    cells: tuple[str, ...]


@dataclass(frozen=True)
class ShownSide:
    """One machine's marks and containers."""

    name: str
    marks: tuple[tuple[str, str, str], ...]
    containers: tuple[ShownContainer, ...]


@dataclass(frozen=True)
class ShownChart:
    """One machine's chart of a panel. `legend`: colour, name and figures of each line."""

    name: str
    picture: LoadPicture
    marks: tuple[tuple[float, str], ...]
    legend: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class ShownPanel:
    """One panel with the charts of all machines."""

    key: str
    title: str
    words: str
    sides: tuple[ShownChart, ...]


@dataclass(frozen=True)
class GlanceRow:
    """A figure of each machine, as text."""

    title: str
    cells: tuple[str, ...]


def watch_page(title: str, watches: Sequence[tuple[str, MachineWatch]]) -> str:
    """Return the page of named watches."""
    drawn = [(name, watch, {panel.key: panel for panel in panels(watch)}) for name, watch in watches]
    return pages.render(
        "watch.html",
        data={},
        styles=["report.css", "watch.css"],
        values={
            "title": title,
            "lead": _lead([watch for _, watch in watches]),
            "notes": _notes(watches),
            "sides": [ShownSide(name, _marks(watch), _containers(watch)) for name, watch in watches],
            "rows": glance([watch for _, watch in watches]),
            "panels": _panels(drawn),
            "size": (WIDTH, HEIGHT),
            "container_heads": CONTAINER_HEADS,
        },
    )


def _lead(watches: Sequence[MachineWatch]) -> str:
    clocks = {watch.clock for watch in watches}
    clock = "the machine's own time, in which each instruction takes a nanosecond"
    words = {Clock.INSTRUCTIONS: clock, Clock.WALL: "wall time"}
    every = ", ".join(dict.fromkeys(figures.microseconds(1000 * w.every_ms * w.thinned) for w in watches))
    return f"A sample every {every}; {' and '.join(words[clock] for clock in sorted(clocks))}"


def _notes(watches: Sequence[tuple[str, MachineWatch]]) -> list[str]:
    found = []
    for name, watch in watches:
        notes = list(watch.notes)
        if missing := rates.gaps(watch):
            notes.append(f"samples are missing in {plural(len(missing), 'interval')}: the lines are means over those")
        found += [f"{name}: {note}" if len(watches) > 1 else note for note in notes]
    return list(dict.fromkeys(found))


def glance(watches: Sequence[MachineWatch]) -> list[GlanceRow]:
    """Return the figures of whole watches, as rows."""
    return [
        GlanceRow("Watched", tuple(figures.seconds(_span_s(watch)) for watch in watches)),
        GlanceRow("Samples", tuple(str(len(watch.times_ns)) for watch in watches)),
        GlanceRow("Containers seen", tuple(str(len(watch.containers)) for watch in watches)),
        *(
            GlanceRow(title, tuple(figures.microseconds(_grown(watch, kind, names)) for watch in watches))
            for title, kind, names in (
                ("Processor time in programs", WatchedKind.MACHINE, ("cpu_user_us", "cpu_nice_us")),
                (
                    "Processor time in the kernel",
                    WatchedKind.MACHINE,
                    ("cpu_system_us", "cpu_irq_us", "cpu_softirq_us"),
                ),
                ("Processor time, seen by the host", WatchedKind.HOST, ("cpu_us",)),
            )
        ),
        *(
            GlanceRow(title, tuple(figures.file_bytes(_grown(watch, kind, names)) for watch in watches))
            for title, kind, names in (
                ("Read from disks", WatchedKind.DISK, ("read_bytes",)),
                ("Written to disks", WatchedKind.DISK, ("written_bytes",)),
            )
        ),
        *(
            GlanceRow(title, tuple(figures.memory_bytes(_most(watch, name)) for watch in watches))
            for title, name in (
                ("Most memory used", "used in the machine"),
                ("Most memory of the host", "seen by the host"),
            )
        ),
    ]


def _span_s(watch: MachineWatch) -> float:
    return (watch.times_ns[-1] - watch.times_ns[0]) / 1e9 if watch.times_ns else 0.0


def _grown(watch: MachineWatch, kind: WatchedKind, names: Sequence[str]) -> int | None:
    found = [value for one in watch.of(kind) if one.figure in names and (value := rates.grown(one)) is not None]
    return sum(found) if found else None


def _most(watch: MachineWatch, name: str) -> float | None:
    memory = next((panel for panel in panels(watch) if panel.key == "memory"), None)
    return next((line.most for line in memory.lines if line.name == name), None) if memory is not None else None


def _marks(watch: MachineWatch) -> tuple[tuple[str, str, str], ...]:
    return tuple((f"{mark.at_ns / 1e9:.3f} s", mark.name, mark.title) for mark in watch.marks)


def _containers(watch: MachineWatch) -> tuple[ShownContainer, ...]:
    found = []
    for one in watch.containers:
        series = {s.figure: s for s in watch.of(WatchedKind.CONTAINER) if s.name == one.id}

        def grown(*names: str, series=series) -> int | None:  # type: ignore[no-untyped-def]
            values = [value for name in names if name in series and (value := rates.grown(series[name])) is not None]
            return sum(values) if values else None

        memory = [v for v in series["memory_bytes"].values if v is not None] if "memory_bytes" in series else []
        cells = (
            figures.microseconds(grown("cpu_us")),
            figures.memory_bytes(max(memory, default=None)),
            figures.file_bytes(grown("read_bytes", "written_bytes")),
            figures.file_bytes(grown("received_bytes", "sent_bytes")),
        )
        found.append(ShownContainer(one.id, one.engine, one.command, cells))
    return tuple(found)


# --- charts ---


def _panels(drawn: Sequence[tuple[str, MachineWatch, dict[str, Panel]]]) -> list[ShownPanel]:
    span_s = max((_span_s(watch) for _, watch, _ in drawn), default=0.0)
    keys = dict.fromkeys(key for _, _, some in drawn for key in some)
    found = []
    for key in keys:
        first = next(some[key] for _, _, some in drawn if key in some)
        most = max((line.most or 0.0 for _, _, some in drawn if key in some for line in some[key].lines), default=0.0)
        charts = tuple(
            _chart(name, watch, some.get(key, replace(first, lines=())), span_s, most) for name, watch, some in drawn
        )
        found.append(ShownPanel(key, first.title, first.words, charts))
    return found


def _chart(name: str, watch: MachineWatch, panel: Panel, span_s: float, most: float) -> ShownChart:
    begin_ns = watch.times_ns[0] if watch.times_ns else 0
    places = [_share((ns - begin_ns) / 1e9, span_s) for ns in watch.times_ns]
    curves, legend = [], []
    for number, line in enumerate(panel.lines):
        kind = f"k{number % _COLOURS}"
        curves += [LoadCurve(line.name, kind, points) for points in _pieces(line, places, most)]
        words = f"mean {panel.unit.form(line.mean or 0)}, most {panel.unit.form(line.most or 0)}"
        legend.append((kind, line.name, words))
    picture = LoadPicture(
        f"{panel.title} of {name}",
        tuple(curves),
        tuple((WIDTH * _share(at, span_s), f"{at:g} s") for at in _ticks(span_s)),
        tuple((HEIGHT * (1 - _share(at, most)), panel.unit.form(at)) for at in _ticks(most, panel.unit)),
    )
    moments = tuple(
        (WIDTH * _share((mark.at_ns - begin_ns) / 1e9, span_s), f"{mark.name} {mark.title}".strip())
        for mark in watch.marks[:_MOST_MOMENTS]
        if begin_ns <= mark.at_ns <= begin_ns + 1e9 * span_s
    )
    return ShownChart(name, picture, moments, tuple(legend))


def _share(value: float, most: float) -> float:
    return min(1.0, max(0.0, value / most)) if most > 0 else 0.0


def _pieces(line: PanelLine, places: Sequence[float], most: float) -> list[str]:
    """Return a line as polygons of points: where a value is missing it is interrupted."""
    found: list[list[str]] = [[]]
    for place, value in zip(places, line.values, strict=True):
        if value is None:
            found.append([])
        else:
            found[-1].append(f"{WIDTH * place:.1f},{HEIGHT * (1 - _share(value, most)):.1f}")
    return [" ".join(points * 2 if len(points) == 1 else points) for points in found if points]


def _ticks(most: float, unit: PanelUnit | None = None) -> list[float]:
    """Return three to six round values up to the highest one."""
    if most <= 0:
        return [0.0]
    base = 1024 ** math.floor(math.log(most, 1024)) if unit is PanelUnit.BYTES and most >= 1 else 1.0
    step = 10.0 ** math.floor(math.log10(most / base)) * base
    step = next(size for size in (step, step / 2, step / 5, step / 10) if most / size >= 3)
    return [step * number for number in range(int(most / step) + 1)][:12]
