# SPDX-License-Identifier: Apache-2.0
"""A command with its moments: its start, the instance's own report, its first output, its end."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import struct
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from vmtailor.base.process import spawn

_IN_CREATE, _IN_NONBLOCK, _IN_CLOEXEC = 0x100, 0o4000, 0o2000000
_EVENT = struct.Struct("iIII")
#: Most bytes of a command's output that are kept.
MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class TimedCommand:
    """A command that has run. Times are seconds since just before it was started; None for what did not happen.
    `returncode`: None when it was ended because its time was over."""

    reports: tuple[float, ...]
    first_output_s: float | None
    exit_s: float
    returncode: int | None
    stdout: bytes
    stderr: bytes

    @property
    def said(self) -> str:
        return (self.stderr or self.stdout)[-2000:].decode("utf-8", "replace").strip()


def said_until_now(file: IO[bytes]) -> bytes:
    """Return the output so far in a file that a program may go on writing. The file's position does not move."""
    return os.pread(file.fileno(), MOST_BYTES, 0)


class CallBacks:
    """A watch on a folder in which instances create files to say that they are there. Each file's moment is that of
    the kernel's notice. Close it with `contextlib.closing`. Raises OSError."""

    def __init__(self, folder: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self.fd = libc.inotify_init1(_IN_NONBLOCK | _IN_CLOEXEC)
        if self.fd < 0 or libc.inotify_add_watch(self.fd, os.fsencode(folder), _IN_CREATE) < 0:
            error = OSError(ctypes.get_errno(), "inotify")
            if self.fd >= 0:
                self.close()
            raise error

    def take(self) -> list[str]:
        """Return the names of the files created since the last call, in their order."""
        try:
            data = os.read(self.fd, 65536)
        except BlockingIOError:
            return []
        names, at = [], 0
        while at < len(data):
            length = _EVENT.unpack_from(data, at)[3]
            at += _EVENT.size + length
            names.append(os.fsdecode(data[at - length : at].rstrip(b"\0")))
        return names

    def wait(self, until_s: float) -> list[str]:
        """Return the next names, waiting for them until a moment of the monotonic clock; none when it has passed."""
        left = until_s - time.monotonic()
        return self.take() if left > 0 and select.select([self.fd], [], [], left)[0] else []

    def close(self) -> None:
        """Stop watching the folder."""
        os.close(self.fd)


def timed(
    words: Sequence[str],
    *,
    deadline_s: float,
    callbacks: CallBacks | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> TimedCommand:
    """Run a command to its end, or end it after `deadline_s`."""
    started = time.monotonic()
    reports: list[float] = []
    kept: dict[int, bytearray] = {}
    first: float | None = None
    returncode: int | None = None
    with (
        spawn(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, cwd=cwd) as process,
        contextlib.ExitStack() as held,
    ):
        assert process.stdout is not None and process.stderr is not None
        out, err = process.stdout.fileno(), process.stderr.fileno()
        kept = {out: bytearray(), err: bytearray()}
        ended = os.pidfd_open(process.pid)
        held.callback(os.close, ended)
        open_ends = {out, err, ended, *([callbacks.fd] if callbacks else [])}
        poll = select.poll()
        for one in open_ends:
            poll.register(one, select.POLLIN)
        exit_s = deadline_s
        while open_ends & {out, err, ended} and (left := started + deadline_s - time.monotonic()) > 0:
            events = poll.poll(1000 * left)
            at = time.monotonic() - started
            for one, _ in events:
                if callbacks and one == callbacks.fd:
                    reports += [at] * len(callbacks.take())
                elif one == ended:
                    exit_s = at
                    poll.unregister(one)
                    open_ends.discard(one)
                elif data := os.read(one, 65536):
                    first = at if one == out and first is None else first
                    kept[one] += data[: MOST_BYTES - len(kept[one])]
                else:
                    poll.unregister(one)
                    open_ends.discard(one)
        if ended not in open_ends:
            returncode = process.wait()
    return TimedCommand(
        reports=tuple(reports),
        first_output_s=first,
        exit_s=exit_s,
        returncode=returncode,
        stdout=bytes(kept[out]),
        stderr=bytes(kept[err]),
    )
