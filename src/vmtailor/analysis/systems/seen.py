# SPDX-License-Identifier: Apache-2.0
"""One pass over the log of a watched system: all that its record keeps, within bounds whatever the log holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from vmtailor.analysis.demands import degradation, file_uses
from vmtailor.analysis.systems.loads import Noted
from vmtailor.analysis.systems.log import Mark, Reading
from vmtailor.model.syscalls import FailedCall, SyscallEvent
from vmtailor.model.trace import FileUse

#: Most different failed calls and paths that are kept.
MOST = 200_000
_BATCH = 4096


@dataclass
class Seen:
    """The calls, files and marks of a log. `cut`: there were more different failed calls or paths than are kept."""

    reading: Reading = field(default_factory=Reading)
    noted: Noted = field(default_factory=Noted)
    cut: bool = False
    _failed: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    _files: dict[str, FileUse] = field(default_factory=dict)

    def take(self, chunks: Iterable[bytes], on_lines: Callable[[int], None] = lambda lines: None) -> None:
        """Read the log. `on_lines` is told how many lines were read, now and then."""
        batch: list[SyscallEvent] = []
        for event in self._calls(chunks):
            batch.append(event)
            if len(batch) >= _BATCH:
                self._batch(batch)
                on_lines(self.reading.lines)
                batch = []
        self._batch(batch)

    def _calls(self, chunks: Iterable[bytes]) -> Iterator[SyscallEvent]:
        for one in self.reading.read(chunks):
            if isinstance(one, Mark):
                self.noted.mark(one)
            else:
                self.noted.call(one)
                yield one

    def _batch(self, events: list[SyscallEvent]) -> None:
        for failed in degradation.failed_calls(events):
            key = (failed.name, failed.arguments, failed.error)
            if key in self._failed or len(self._failed) < MOST:
                self._failed[key] += failed.count
            else:
                self.cut = True
        for use in file_uses.of_events(events):
            known = self._files.get(use.path)
            if known is None and len(self._files) >= MOST:
                self.cut = True
            elif known is None:
                self._files[use.path] = use
            else:
                self._files[use.path] = FileUse(
                    use.path, known.opened + use.opened, known.failed + use.failed, known.written or use.written
                )

    @property
    def failed_calls(self) -> tuple[FailedCall, ...]:
        return tuple(FailedCall(*key, count) for key, count in sorted(self._failed.items()))

    @property
    def files(self) -> tuple[FileUse, ...]:
        return tuple(self._files[path] for path in sorted(self._files))
