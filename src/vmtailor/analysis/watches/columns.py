# SPDX-License-Identifier: Apache-2.0
"""Samples as columns: a series for each figure, with a value or None for each sample. Memory is bounded: where more
samples come than are kept, every other one is left out, and the watch goes on with half as many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vmtailor import __version__
from vmtailor.analysis.watches.sample_text import Key, Sample
from vmtailor.base.text import plain
from vmtailor.model.machine import Clock
from vmtailor.model.machine_watch import (
    MOST_SAMPLES,
    MOST_SERIES,
    MOST_VALUES,
    MachineWatch,
    WatchedContainer,
    WatchMark,
    WatchSeries,
)


class WatchColumns:
    """Collects samples. `most`: of them that are kept, an even number; `values`: of all series together."""

    def __init__(self, most: int = MOST_SAMPLES, values: int = MOST_VALUES) -> None:
        self.thinned = 1
        self.full = False
        self._most = most
        self._values = values
        self._seen = 0
        self._times: list[int] = []
        self._reals: list[int] = []
        self._columns: dict[Key, list[int | None]] = {}

    def __len__(self) -> int:
        return len(self._times)

    def add(self, sample: Sample, beside: Mapping[Key, int] | None = None) -> None:
        """Add a sample, with what others know at the same moment. One that the thinning leaves out is dropped."""
        number, self._seen = self._seen, self._seen + 1
        if number % self.thinned:
            return
        if len(self._times) >= self._most or len(self._times) * len(self._columns) >= self._values:
            self._thin()
            if number % self.thinned:
                return
        self._times.append(sample.monotonic_ns)
        self._reals.append(sample.real_ns)
        for key, value in (*sample.values.items(), *(beside or {}).items()):
            column = self._columns.get(key)
            if column is None:
                if len(self._columns) >= MOST_SERIES:
                    self.full = True
                    continue
                column = self._columns[key] = []
            column += [None] * (len(self._times) - 1 - len(column))
            column.append(value)

    def _thin(self) -> None:
        self.thinned *= 2
        self._times, self._reals = self._times[::2], self._reals[::2]
        self._columns = {key: column[::2] for key, column in self._columns.items()}

    def record(
        self,
        subject: str,
        clock: Clock,
        every_ms: int,
        *,
        containers: Sequence[WatchedContainer] = (),
        marks: Sequence[WatchMark] = (),
        notes: Sequence[str] = (),
    ) -> MachineWatch:
        """Return the record of all that was added."""
        count = len(self._times)
        more = [f"one of {self.thinned} samples was kept"] if self.thinned > 1 else []
        more += [f"more than {MOST_SERIES} series came; the later ones were left out"] if self.full else []
        return MachineWatch(
            version=__version__,
            subject=plain(subject),
            clock=clock,
            every_ms=every_ms,
            times_ns=tuple(self._times),
            real_ns=tuple(self._reals),
            series=tuple(
                WatchSeries(of, name, figure, (*column, *(None for _ in range(count - len(column)))))
                for (of, name, figure), column in self._columns.items()
            ),
            containers=tuple(containers),
            marks=tuple(marks),
            thinned=self.thinned,
            notes=(*notes, *more),
        )
