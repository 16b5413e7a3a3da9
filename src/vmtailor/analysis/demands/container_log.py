# SPDX-License-Identifier: Apache-2.0
"""The container's own calls in the tracer's log: phases from the marks, our init's preparation left out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from vmtailor.analysis.demands import strace_log, working_folders
from vmtailor.analysis.demands.strace_log import CallLog
from vmtailor.model.boots.boot import Phase
from vmtailor.model.guest import GuestReport
from vmtailor.model.syscalls import SyscallEvent

#: Mark → phase of the container that begins there.
_PHASES = (
    ("entry", Phase.START_UP),
    ("ready", Phase.SETTLE),
    ("load", Phase.LOAD),
    ("stop", Phase.STOP),
)
#: What is executed first in a traced start; it sets user, groups and folder, and executes the entry point.
_OURS = '"/.vmtailor/init"'


def phases(report: GuestReport) -> tuple[tuple[str, float], ...]:
    """Phase and the second of the guest's clock at which it began."""
    found = []
    for name, phase in _PHASES:
        mark = report.mark(name)
        if mark is not None:
            found.append((phase.value, mark.realtime_ns / 1e9))
    return tuple(found)


def read(data: bytes, begins: Sequence[tuple[str, float]]) -> CallLog:
    """The log of a requests boot. `begins`: what `phases` gave for it."""
    log = strace_log.parse(data, begins)
    return replace(log, events=tuple(_of_container(working_folders.placed(log.events))))


def _of_container(events: Iterable[SyscallEvent]) -> list[SyscallEvent]:
    preparing: set[int] = set()
    kept = []
    for event in events:
        executed = event.name == "execve" and event.result == 0
        if executed and event.args[:1] == (_OURS,):
            preparing.add(event.pid)
        elif executed:
            preparing.discard(event.pid)
        if event.pid not in preparing:
            kept.append(event)
    return kept
