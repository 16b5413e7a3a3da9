# SPDX-License-Identifier: Apache-2.0
"""Panels of a watched machine: processors, load, memory, disks and network, each as lines over the machine's clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from vmtailor.analysis.watches.rates import rates
from vmtailor.base import figures
from vmtailor.model.machine_watch import MachineWatch, WatchedKind, WatchSeries

#: Containers with lines of their own: those with the highest values.
MOST_CONTAINERS = 8


class PanelUnit(Enum):
    """The units of a panel's scale, each with its form for people."""

    PROCESSORS = "processors"
    LOAD = "load"
    BYTES = "bytes"
    BYTES_A_SECOND = "bytes a second"

    def form(self, value: float) -> str:
        """Return a value in this unit."""
        if self is PanelUnit.BYTES:
            return figures.memory_bytes(value)
        if self is PanelUnit.BYTES_A_SECOND:
            return f"{figures.file_bytes(value)}/s"
        return f"{value:.3g}"


@dataclass(frozen=True)
class PanelLine:
    """One line: a value for each sample, None where there is none."""

    name: str
    values: tuple[float | None, ...]

    @property
    def known(self) -> list[float]:
        """Return the values that are there."""
        return [value for value in self.values if value is not None]

    @property
    def mean(self) -> float | None:
        """Return the mean of the values."""
        return sum(self.known) / len(self.known) if self.known else None

    @property
    def most(self) -> float | None:
        """Return the highest value."""
        return max(self.known, default=None)


@dataclass(frozen=True)
class Panel:
    """One subject of the page."""

    key: str
    title: str
    words: str
    unit: PanelUnit
    lines: tuple[PanelLine, ...]


def panels(watch: MachineWatch) -> tuple[Panel, ...]:
    """Return the panels of a watch; one without any value is left out."""
    rates_unit = PanelUnit.BYTES_A_SECOND
    load, used = (
        "Of one minute, as the machine's kernel keeps it.",
        "Used is all but what the kernel could give at once.",
    )
    table = (
        ("processors", "Processors in use: 1 is one of them all the time.", PanelUnit.PROCESSORS, _processors(watch)),
        ("load average", load, PanelUnit.LOAD, _load(watch)),
        ("memory", used, PanelUnit.BYTES, _memory(watch)),
        ("disks", "Bytes read and written in a second.", rates_unit, _disks(watch)),
        ("network", "Bytes received and sent in a second, loopback left out.", rates_unit, _network(watch)),
    )
    found = (
        Panel(key=name.partition(" ")[0], title=name.capitalize(), words=words, unit=unit, lines=_drawn(lines))
        for name, words, unit, lines in table
    )
    return tuple(panel for panel in found if any(line.known for line in panel.lines))


def _drawn(lines: Iterable[PanelLine]) -> tuple[PanelLine, ...]:
    return tuple(line for line in lines if line.known)


def _rate(watch: MachineWatch, series: Iterable[WatchSeries], scale: float = 1.0) -> tuple[float | None, ...]:
    """Return the sum of rates; None at samples at which no series has one."""
    every = [rates(one, watch.times_ns).values for one in series]
    sums: list[float | None] = [None] * bool(watch.times_ns)
    for parts in zip(*every, strict=True):
        known = [part for part in parts if part is not None]
        sums.append(sum(known) * scale if known else None)
    return tuple(sums)


def _processors(watch: MachineWatch) -> Iterator[PanelLine]:
    parts = {"programs": ("user", "nice"), "kernel": ("system", "irq", "softirq"), "steal": ("steal",)}
    for name, modes in parts.items():
        series = [s for s in watch.of(WatchedKind.MACHINE) if s.figure in {f"cpu_{mode}_us" for mode in modes}]
        line = PanelLine(name, _rate(watch, series, 1e-6))
        if name != "steal" or any(line.known):
            yield line
    yield from _of_host(watch, "cpu_us", lambda one: _rate(watch, [one], 1e-6))
    yield from _of_containers(watch, ("cpu_us",), lambda some: _rate(watch, some, 1e-6))


def _of_host(
    watch: MachineWatch, figure: str, values: Callable[[WatchSeries], tuple[float | None, ...]]
) -> Iterator[PanelLine]:
    one = watch.find(WatchedKind.HOST, figure)
    if one is not None:
        yield PanelLine("seen by the host", values(one))


def _of_containers(
    watch: MachineWatch, names: Sequence[str], values: Callable[[list[WatchSeries]], tuple[float | None, ...]]
) -> Iterator[PanelLine]:
    by_name: dict[str, list[WatchSeries]] = {}
    for one in watch.of(WatchedKind.CONTAINER):
        if one.figure in names:
            by_name.setdefault(one.name, []).append(one)
    commands = {one.id: one.command for one in watch.containers}
    lines = [PanelLine(f"{commands.get(name, '?')} {name[:12]}", values(some)) for name, some in by_name.items()]
    yield from sorted(lines, key=lambda line: -(line.most or 0.0))[:MOST_CONTAINERS]


def _load(watch: MachineWatch) -> Iterator[PanelLine]:
    one = watch.find(WatchedKind.MACHINE, "load_1_thousandths")
    if one is not None:
        yield PanelLine("load average", tuple(None if value is None else value / 1000 for value in one.values))


def _memory(watch: MachineWatch) -> Iterator[PanelLine]:
    total = watch.find(WatchedKind.MACHINE, "memory_total_bytes")
    left = watch.find(WatchedKind.MACHINE, "memory_available_bytes") or watch.find(
        WatchedKind.MACHINE, "memory_free_bytes"
    )
    if total is not None and left is not None:
        pairs = zip(total.values, left.values, strict=True)
        yield PanelLine("used in the machine", tuple(None if a is None or b is None else a - b for a, b in pairs))
    yield from _of_host(watch, "resident_bytes", lambda one: one.values)
    yield from _of_containers(watch, ("memory_bytes",), lambda some: some[0].values)


def _disks(watch: MachineWatch) -> Iterator[PanelLine]:
    for figure, word in (("read_bytes", "read"), ("written_bytes", "written")):
        yield PanelLine(word, _rate(watch, [s for s in watch.of(WatchedKind.DISK) if s.figure == figure]))
        host = [s for s in watch.of(WatchedKind.HOST_DISK) if s.figure == figure]
        yield PanelLine(f"{word}, by the monitor", _rate(watch, host))
    yield from _of_containers(watch, ("read_bytes", "written_bytes"), lambda some: _rate(watch, some))


def _network(watch: MachineWatch) -> Iterator[PanelLine]:
    def outside(one: WatchSeries) -> bool:
        return not one.name.startswith(("lo", "veth", "docker", "br-", "podman", "cni"))

    for figure, word in (("received_bytes", "received"), ("sent_bytes", "sent")):
        series = [s for s in watch.of(WatchedKind.INTERFACE) if s.figure == figure and outside(s)]
        yield PanelLine(word, _rate(watch, series))
    yield from _of_containers(watch, ("received_bytes", "sent_bytes"), lambda some: _rate(watch, some))
