# SPDX-License-Identifier: Apache-2.0
"""In which folder each process of a trace works: the tracer says it where a call names a folder, but not of calls that
name a path alone."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from dataclasses import replace

from vmtailor.analysis.demands.call_paths import BY_PATH_ALONE
from vmtailor.model.syscalls import FORKS, SyscallEvent

_CHANGING = frozenset({"chdir", "fchdir"})
#: A whole string, in the tracer's own escapes.
_STRING = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"', re.S)
#: A descriptor with its path, without anything that would be escaped otherwise in a string.
_DESCRIPTOR = re.compile(r'(?:\d+|AT_FDCWD)<(/[^"\\<>]*)>')
#: Processes that are kept in mind, and the longest folder of one: the log is a guest's, and folders add up.
_MOST, _LONGEST = 1 << 16, 4096


def placed(events: Iterable[SyscallEvent]) -> list[SyscallEvent]:
    """The events, in the order in which they began; a relative path in those that worked is made absolute where the
    process's folder is known: from a call that changed it, or from its parent's."""
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
