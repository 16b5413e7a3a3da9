# SPDX-License-Identifier: Apache-2.0
"""Kernel events between a system's calls: modules asked for, modules loaded, programs started."""

from __future__ import annotations

import re
from dataclasses import dataclass

from vmtailor.analysis.systems.log import Mark

_LINE = re.compile(r"\s*(.{1,16}?)-(\d{1,10})\s+\[\d+\]\s+\S+\s+(\d+\.\d+): (\w+): (.*)\Z", re.S)
_EXEC = re.compile(r"filename=(.*) pid=(\d+) old_pid=(\d+)\Z", re.S)
_REQUEST = re.compile(r"(\S+) wait=\d call_site=\S+")


@dataclass(frozen=True)
class KernelEvent:
    """`kind`: module_request, module_load or sched_process_exec. `name`: the alias, the module, the program's path.
    `task` and `pid`: who was running."""

    kind: str
    name: str
    task: str
    pid: int
    line: int


def read(mark: Mark) -> KernelEvent | None:
    """Return the event of a mark of the kind `kernel`; None for what is none that is known."""
    match = _LINE.match(mark.text) if mark.kind == "kernel" else None
    if match is None:
        return None
    task, pid, kind, rest = match[1].strip(), int(match[2]), match[4], match[5]
    if kind == "sched_process_exec":
        found = _EXEC.match(rest)
        return KernelEvent(kind=kind, name=found[1], task=task, pid=pid, line=mark.line) if found else None
    if kind == "module_request":
        asked = _REQUEST.match(rest)
        return KernelEvent(kind=kind, name=asked[1], task=task, pid=pid, line=mark.line) if asked else None
    if kind == "module_load" and rest.split():
        return KernelEvent(kind=kind, name=rest.split()[0], task=task, pid=pid, line=mark.line)
    return None
