# SPDX-License-Identifier: Apache-2.0
"""The log of a watched system as a stream: system calls of all its processes, and our marks between them.

It comes from a guest, and may be of any length: nothing of it is kept but what is under way, and that within bounds.
Lines that cannot be understood are counted and passed over. The marks are lines "+++ vmtailor KIND … +++"
(native/small-init/watch_log.c); a process of the guest cannot write one, since the tracer begins each of its lines with
a number.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from vmtailor.analysis.demands.strace_log import LINE, RESUMED, UNFINISHED, unquote, whole_call
from vmtailor.model.syscalls import SyscallEvent

#: Longest line that is read, most lines of a log, and most processes with a call under way.
MOST_LINE = 65536
MOST_LINES = 20_000_000
MOST_PENDING = 8192
#: Our programs that the tracer executes first in PID 1, before the root's init. With an exercise, the attendant, whose
#: other process stays.
OURS = frozenset({'"/init"', '"/attendant"'})
_ATTENDANT = "attendant"
#: Names of tasks that are the watchers themselves: their loader's, and the small init's.
WATCHERS = ("ld.so", "@vmtailor-log", "@vmtailor-strac")

_MARK = re.compile(r"\+\+\+ vmtailor (\w+) (.*) \+\+\+\Z", re.S)


@dataclass(frozen=True)
class Mark:
    """A line of the watchers. `kind`: time, events, kernel, device, module or section."""

    line: int
    kind: str
    text: str


@dataclass
class Reading:
    """Reads a log once, and counts on the way. `first_s`, `last_s`: seconds since 1970 of its first and last line.
    `whole`: it was read to its end, within the bounds."""

    lines: int = 0
    calls: int = 0
    skipped: int = 0
    never_returned: int = 0
    first_s: float = 0.0
    last_s: float = 0.0
    whole: bool = True
    processes: set[int] = field(default_factory=set)
    _pending: OrderedDict[int, tuple[int, str, str]] = field(default_factory=OrderedDict)
    _clients: set[int] = field(default_factory=set)
    _begun: bool = False

    def read(self, chunks: Iterable[bytes]) -> Iterator[SyscallEvent | Mark]:
        """Yield the calls, in the order in which they returned, from the first of the system's own init on, and all
        marks. Calls that never returned come last, without a result: one process that hangs loses nothing of the
        others."""
        for text in self._texts(chunks):
            self.lines += 1
            if self.lines > MOST_LINES:
                self.whole = False
                break
            mark = _MARK.match(text)
            found = Mark(self.lines, mark[1], mark[2]) if mark else self._call(text)
            if mark and mark[1] == "time":
                self._time(mark[2].partition(" ")[0])
            if found is not None:
                yield found
        for pid, (line, task, call) in self._pending.items():
            event = whole_call(f"{call}) = ?", line, pid, task)
            self.never_returned += 1
            if event is not None and self._begun:
                yield event

    def _texts(self, chunks: Iterable[bytes]) -> Iterator[str]:
        """Yield lines up to the first NUL: what follows is the empty rest of a disk."""
        held = b""
        for chunk in chunks:
            part, nul, _ = chunk.partition(b"\0")
            *whole, held = (held + part).split(b"\n")
            for line in whole:
                if len(line) <= MOST_LINE:
                    yield line.decode("utf-8", "replace")
                else:
                    self.lines += 1
                    self.skipped += 1
            if len(held) > MOST_LINE:
                held = held[: MOST_LINE + 1]  # its end is still looked for, and the line passed over
            if nul:
                break
        # A last line without an end was being written when the machine ended.

    def _time(self, text: str) -> None:
        try:
            seconds = float(text)
        except ValueError:
            return
        if 0 < seconds < 1e11:
            self.first_s = self.first_s or seconds
            self.last_s = max(self.last_s, seconds)

    def _call(self, text: str) -> SyscallEvent | None:
        match = LINE.match(text)
        if match is None:
            self.skipped += 1
            return None
        pid, task, rest = int(match[1]), unquote(f'"{match[2] or match[1]}"')[:15], match[4]
        self._time(match[3])
        if rest.startswith(("---", "+++")):  # a signal; the end of a process
            if rest.startswith("+++"):
                self._pending.pop(pid, None)
            return None
        line = self.lines
        resumed = RESUMED.match(rest)
        if resumed:
            line, task, begun = self._pending.pop(pid, (line, task, ""))
            if not begun.startswith(f"{resumed[1]}("):
                self.skipped += 1
                return None
            rest = begun + rest[resumed.end() :]
        elif rest.endswith(UNFINISHED):
            self._pending[pid] = (line, task, rest.removesuffix(UNFINISHED))
            if len(self._pending) > MOST_PENDING:
                self._pending.popitem(last=False)
                self.skipped += 1
            return None
        event = whole_call(rest, line, pid, task)
        if event is None:
            self.skipped += 1
            return None
        return self._counted(event)

    def _counted(self, event: SyscallEvent) -> SyscallEvent | None:
        if not self._begun:
            # Ours until PID 1 becomes what the root has.
            own = event.pid == 1 and event.name == "execve" and event.result == 0 and not {*event.args[:1]} & OURS
            if not own:
                return None
            self._begun = True
        if self._is_attendants(event):
            return None
        self.calls += 1
        if len(self.processes) < 1 << 20:
            self.processes.add(event.pid)
        return event

    def _is_attendants(self, event: SyscallEvent) -> bool:
        """Return whether a call is the attendant's own, or of the client that it starts by a descriptor. A program that
        it starts by name is a command of the exercise, and belongs to the system from then on."""
        ours = event.task == _ATTENDANT or event.pid in self._clients
        if ours and event.name == "execve" and event.result == 0:
            return False
        if ours and event.name == "execveat" and event.result == 0 and len(self._clients) < 1 << 16:
            self._clients.add(event.pid)
        return ours
