# SPDX-License-Identifier: Apache-2.0
"""A watched machine as OpenMetrics text (version 1.0), which Prometheus and its kin read: each family once, its points
by time, in base units."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vmtailor.model.machine import Clock
from vmtailor.model.machine_watch import (
    FigureUnit,
    MachineWatch,
    WatchedKind,
    WatchFigure,
    WatchSeries,
    figures,
)

#: Label that names what a series is of.
_LABELS = {
    WatchedKind.PROCESSOR: "processor",
    WatchedKind.DISK: "device",
    WatchedKind.INTERFACE: "interface",
    WatchedKind.CONTAINER: "container",
    WatchedKind.HOST_DISK: "device",
}
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def text(watch: MachineWatch) -> str:
    """Return the text. Stamps are seconds since 1970 on the wall clock. On the instruction clock they are seconds of
    the machine's own time, from its kernel's start."""
    families: dict[str, list[WatchFigure]] = {}
    for row in (row for some in figures().values() for row in some):
        families.setdefault(row.metric, []).append(row)
    stamps = [(ns + _since_1970_ns(watch)) / 1e9 for ns in watch.times_ns]
    lines: list[str] = []
    for metric, rows in families.items():
        points = [line for row in rows for one in _series(watch, row) for line in _points(watch, one, row, stamps)]
        if points:
            lines += [*_head(metric, rows[0]), *points]
    return "".join(f"{line}\n" for line in (*lines, *_named(watch), "# EOF"))


def _since_1970_ns(watch: MachineWatch) -> int:
    """Return when the machine's clock started. Its time of day may be set while it runs; its last one is believed."""
    exact = watch.clock is Clock.INSTRUCTIONS or not watch.times_ns
    return 0 if exact else max(0, watch.real_ns[-1] - watch.times_ns[-1])


def _head(metric: str, row: WatchFigure) -> Iterator[str]:
    unit = next((name for name in ("seconds", "bytes") if metric.endswith(f"_{name}")), "")
    yield f"# TYPE {metric} {'counter' if row.grows else 'gauge'}"
    if unit:
        yield f"# UNIT {metric} {unit}"
    yield f"# HELP {metric} {row.help.translate(_ESCAPES)}"


def _series(watch: MachineWatch, row: WatchFigure) -> Iterator[WatchSeries]:
    return (one for one in watch.of(row.of) if one.figure == row.name)


def _points(watch: MachineWatch, one: WatchSeries, row: WatchFigure, stamps: Sequence[float]) -> Iterator[str]:
    labels = [("machine", watch.subject)]
    if one.of in _LABELS:
        labels.append((_LABELS[one.of], one.name))
    if row.label:
        key, _, word = row.label.partition("=")
        labels.append((key, word))
    name = f"{row.metric}{'_total' if row.grows else ''}{_labels(labels)}"
    for value, stamp in zip(one.values, stamps, strict=True):
        if value is not None:
            yield f"{name} {_number(value, row.unit)} {stamp:.9f}"


def _named(watch: MachineWatch) -> Iterator[str]:
    """Yield the containers with their engines and commands, which are labels of nothing else."""
    if not watch.containers:
        return
    yield "# TYPE vmtailor_container info"
    yield "# HELP vmtailor_container Engine and first command of a container."
    for one in watch.containers:
        labels = [("machine", watch.subject), ("container", one.id), ("engine", one.engine), ("command", one.command)]
        yield f"vmtailor_container_info{_labels(labels)} 1"


def _labels(labels: Sequence[tuple[str, str]]) -> str:
    return "{" + ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels) + "}"


def _number(value: int, unit: FigureUnit) -> str:
    if unit is FigureUnit.MICROSECONDS:
        return f"{value // 1_000_000}.{value % 1_000_000:06d}"
    if unit is FigureUnit.THOUSANDTHS:
        return f"{value // 1000}.{value % 1000:03d}"
    return str(value)
