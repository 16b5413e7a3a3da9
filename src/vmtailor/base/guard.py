# SPDX-License-Identifier: Apache-2.0
"""End the programs that we started when we end, even when we are killed. A small program (native/guard/guard.c) knows
the process groups that run, and ends them when its line to us breaks."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

#: Not there while the native parts are being made for the first time; then nothing is guarded.
PROGRAM = Path(__file__).resolve().parent.parent / "_native" / "guard"

_lock = threading.Lock()
#: Process that has a guard → our end of its line. A process that forked off from another needs one of its own.
_lines: dict[int, int] = {}


def start() -> None:
    """Start the guard. Called before a program is started, so that little time lies between that and `watch`."""
    _tell("", start=True)


def watch(group: int) -> None:
    """End this process group when we end."""
    _tell(f"+{group}\n", start=True)


def unwatch(group: int) -> None:
    """Forget a process group that has ended."""
    _tell(f"-{group}\n", start=False)


def _tell(word: str, *, start: bool) -> None:
    with _lock:
        line = _lines.get(os.getpid())
        if line is None and start and PROGRAM.is_file():
            line = _lines[os.getpid()] = _start()
        if line is not None:
            with contextlib.suppress(OSError):  # it was killed: nothing to be done about it
                os.write(line, word.encode())


def _start() -> int:
    """Start a guard; returns our end of its line. It is not waited for: it ends after us."""
    theirs, ours = os.pipe()
    actions = [
        (os.POSIX_SPAWN_DUP2, theirs, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    try:
        os.posix_spawn(PROGRAM, [str(PROGRAM)], {}, file_actions=actions, setsid=True)
    except OSError:  # a folder from which nothing can be executed
        os.close(ours)
        ours = os.open(os.devnull, os.O_WRONLY)
    finally:
        os.close(theirs)
    return ours
