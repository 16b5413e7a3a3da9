# SPDX-License-Identifier: Apache-2.0
"""The container's own system calls in the tracer's log, with folders and ports."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from vmtailor.analysis.demands import strace_log
from vmtailor.analysis.demands.call_paths import BY_PATH_ALONE
from vmtailor.analysis.demands.strace_log import CallLog
from vmtailor.model.boots.boot import Phase
from vmtailor.model.guest import GuestReport
from vmtailor.model.syscalls import FORKS, SyscallEvent

_CHANGING = frozenset({"chdir", "fchdir"})
#: A whole string, in the tracer's own escapes.
_STRING = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"', re.S)
#: A descriptor with its path, without anything that would be escaped otherwise in a string.
_DESCRIPTOR = re.compile(r'(?:\d+|AT_FDCWD)<(/[^"\\<>]*)>')
#: Processes that are kept in mind, and the longest folder of one: the log is a guest's, and folders add up.
_MOST, _LONGEST = 1 << 16, 4096


def placed(events: Iterable[SyscallEvent]) -> list[SyscallEvent]:
    """Return the events, in the order in which they began. A relative path in those that worked is made absolute where
    the process's folder is known: from a call that changed it, or from its parent's."""
    folders: dict[int, str] = {}
    return [_placed(event, folders) for event in events]


def _placed(event: SyscallEvent, folders: dict[int, str]) -> SyscallEvent:
    """`folders`: process → the text that the tracer would print."""
    if event.error or not event.args:
        return event
    first, folder = event.args[0], folders.get(event.pid)
    if event.name in FORKS and folder is not None and event.result and len(folders) < _MOST:
        folders[event.result] = folder
    string = _STRING.fullmatch(first)
    path = string[1] if string else None
    if path is not None and not path.startswith("/") and folder is not None:
        path = f"{folder.rstrip('/')}/{path}"
    if event.name in _CHANGING or first.startswith("AT_FDCWD<"):
        known = _DESCRIPTOR.fullmatch(first)
        now = known[1] if known else path
        folders.pop(event.pid, None)
        if now is not None and now.startswith("/") and len(now) <= _LONGEST and len(folders) < _MOST:
            folders[event.pid] = posixpath.normpath(now)
    if event.name in BY_PATH_ALONE and path is not None and path.startswith("/"):
        return replace(event, args=(f'"{path}"', *event.args[1:]))
    return event


#: Mark → phase of the container that begins there.
_PHASES = (
    ("entry", Phase.START_UP),
    ("ready", Phase.SETTLE),
    ("load", Phase.LOAD),
    ("stop", Phase.STOP),
)
#: Executed first in a traced start; it sets user, groups and folder, and executes the entry point. The tracer, too,
#: executes it once, to say that it has attached.
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
    """Return the log of a requests boot. `begins`: the result of `phases` for it."""
    log = strace_log.parse(data, begins)
    return replace(log, events=tuple(_of_container(placed(log.events))))


#: The call in which a process of ours waits until the tracer has attached to it; what it executes next is `_OURS`.
_WAITING = "read"


def _of_container(events: Iterable[SyscallEvent]) -> list[SyscallEvent]:
    preparing: set[int] = set()
    kept: list[SyscallEvent | None] = []
    last: dict[int, int] = {}  # process → where its last call is
    for event in events:
        executed = event.name == "execve" and event.result == 0
        if executed and event.args[:1] == (_OURS,):
            preparing.add(event.pid)
            before = kept[last[event.pid]] if event.pid in last else None
            if before is not None and before.name == _WAITING:
                kept[last[event.pid]] = None
        elif executed:
            preparing.discard(event.pid)
        if event.pid not in preparing:
            last[event.pid] = len(kept)
            kept.append(event)
    return [event for event in kept if event is not None]


_PORT = re.compile(r"sin6?_port=htons\((\d{1,5})\)")


def tcp_ports(events: Iterable[SyscallEvent]) -> frozenset[int]:
    """Return the ports of the sockets on which `listen` succeeded. A port that the kernel chose is not among them."""
    bound: dict[str, int] = {}
    found = set()
    for event in events:
        if event.error or len(event.args) < 2:
            continue
        if event.name == "bind" and (port := _PORT.search(event.args[1])):
            bound[event.args[0]] = int(port[1])
        elif event.name == "listen" and event.args[0] in bound:
            found.add(bound[event.args[0]])
    return frozenset(found) - {0}


#: To name the protocol of a netlink socket, strace opens one of the family that tells about sockets; the kernel then
#: asks for that family (NETLINK_SOCK_DIAG is 4), and for what answers to the type of socket in question.
_SOCKET_DIAGNOSIS = re.compile(r"net-pf-16-proto-4(?:-type-\d+(?:-\d+)?)?")
_OWN_USE = ("NETLINK_SOCK_DIAG", "NETLINK_INET_DIAG")


def own_requests(requests: Iterable[str], events: Iterable[SyscallEvent]) -> tuple[str, ...]:
    """Return the modules among those that the kernel asked for that the container's own calls (`events`) can have asked
    for."""
    own = any(event.name == "socket" and event.args[2:3] and event.args[2] in _OWN_USE for event in events)
    return tuple(name for name in requests if own or not _SOCKET_DIAGNOSIS.fullmatch(name))
