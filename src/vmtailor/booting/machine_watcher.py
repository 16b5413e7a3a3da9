# SPDX-License-Identifier: Apache-2.0
"""A watched boot: samples of the guest as they come, each with what the host has of the machine at that moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from vmtailor.analysis.watches.columns import WatchColumns
from vmtailor.analysis.watches.sample_text import Key, SampleReader
from vmtailor.base.text import is_number, plain
from vmtailor.drivers.monitors.running_machine import RunningMachine
from vmtailor.model.exercise import Step
from vmtailor.model.guest import GuestReport
from vmtailor.model.machine import Clock, Machine
from vmtailor.model.machine_watch import MachineWatch, WatchedKind, WatchMark

#: Names the guest's file that samples come as.
SAMPLE = "sample"
_STEP = "step-"
#: Characters of a step's words.
_MOST_TITLE = 200
#: Figures of the host's side of a disk.
_DISK = ("reads", "read_bytes", "writes", "written_bytes")


class MachineWatcher:
    """Takes the samples of one boot. `sample_ms`: between two of them; 0 where none are taken, and nothing is done."""

    def __init__(self, machine: Machine, running: RunningMachine, sample_ms: int) -> None:
        self._machine = machine
        self._running = running
        self._every_ms = sample_ms
        self._reader = SampleReader()
        self._columns = WatchColumns()

    @property
    def takes(self) -> Mapping[str, Callable[[bytes], None]]:
        """Return who takes the guest's file of samples, for its session."""
        return {SAMPLE: self._take} if self._every_ms else {}

    def _take(self, data: bytes) -> None:
        samples = self._reader.feed(data)
        for number, sample in enumerate(samples, 1):
            # What the host knows now belongs to the last one.
            self._columns.add(sample, self._of_host() if number == len(samples) else None)

    def _of_host(self) -> dict[Key, int]:
        found: dict[Key, int] = {}
        cpu_s, resident = self._running.cpu_s, self._running.resident_bytes
        if cpu_s is not None:
            found[WatchedKind.HOST, "", "cpu_us"] = round(1e6 * cpu_s)
        if resident is not None:
            found[WatchedKind.HOST, "", "resident_bytes"] = resident
        for name, counts in self._running.disk_counts().items():
            found |= {(WatchedKind.HOST_DISK, name, figure): getattr(counts, figure) for figure in _DISK}
        return found

    def record(self, subject: str, report: GuestReport, steps: Sequence[Step]) -> MachineWatch | None:
        """Return the record of the boot; None where no samples were asked for. `steps`: of the exercise, as the guest
        numbers them."""
        if not self._every_ms:
            return None
        notes = list(self._reader.notes)
        if self._reader.damaged:
            notes.append(f"{self._reader.damaged} lines of the sampler made no sense")
        if not len(self._columns):
            notes.append("no sample came: the machine ended before its sampler was started")
        if self._machine.clock is Clock.INSTRUCTIONS:
            notes.append("the host's figures are those of emulation, at the moments at which the samples came")
        return self._columns.record(
            subject,
            self._machine.clock,
            self._every_ms,
            containers=tuple(self._reader.containers.values()),
            marks=_marks(report, steps),
            notes=notes,
        )


def _marks(report: GuestReport, steps: Sequence[Step]) -> tuple[WatchMark, ...]:
    found = []
    for mark in report.marks:
        number = mark.name.removeprefix(_STEP)
        title = ""
        if mark.name.startswith(_STEP):
            place = int(number) if is_number(number) and len(number) < 5 else len(steps)
            title = plain(steps[place].title)[:_MOST_TITLE] if place < len(steps) else ""
        found.append(WatchMark(plain(mark.name), mark.monotonic_ns, title))
    return tuple(found)
