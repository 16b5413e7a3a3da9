# SPDX-License-Identifier: Apache-2.0
"""Processor time that programs of ours were given, from /proc."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

_PROC = Path("/proc")


def below(pid: int, name: str) -> float:
    """Return the seconds of processor time of the programs `name` that a process started, and of all below them: of
    those that run, and of those that ended and were waited for."""
    children: dict[int, list[int]] = {}
    times: dict[int, tuple[str, int]] = {}
    for number, comm, parent, ticks in _processes():
        children.setdefault(parent, []).append(number)
        times[number] = (comm, ticks)
    waiting = [one for one in children.get(pid, ()) if times[one][0] == name]
    total = 0
    while waiting:
        one = waiting.pop()
        total += times[one][1]
        waiting += children.get(one, ())
    return total / os.sysconf("SC_CLK_TCK")


def _processes() -> Iterator[tuple[int, str, int, int]]:
    """Yield number, name, parent and ticks, its waited children's included, of every process."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(_PROC):
            if entry.name[0] in "123456789":
                with contextlib.suppress(OSError, ValueError, IndexError):
                    head, _, rest = Path(entry.path, "stat").read_text("utf-8", "replace").rpartition(")")
                    words = rest.split()
                    yield int(entry.name), head.partition("(")[2], int(words[1]), sum(map(int, words[11:15]))
