# SPDX-License-Identifier: Apache-2.0
"""The log of a named machine: lines of JSON, as container engines keep them, in at most three files that are
rotated. The supervisor writes it; what stands in it is the guest's."""

from __future__ import annotations

import os
import re
import stat
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from io import BufferedReader
from pathlib import Path
from typing import Any

from vmtailor.base import notation
from vmtailor.base.errors import UserInputError
from vmtailor.drivers.host.machine_folders import MachineFolder

#: Longest line that is read: 16 KiB of output, each byte escaped.
_MOST_LINE = 256 << 10
#: Seconds between two looks for more.
_LOOK_S = 0.1
_DURATION = re.compile(r"(?:([0-9]{1,9})h)?(?:([0-9]{1,9})m)?(?:([0-9]{1,9}(?:\.[0-9]{1,9})?)s)?", re.ASCII)
_SECONDS = re.compile(r"([0-9]{1,12})(?:\.([0-9]{1,9}))?", re.ASCII)
_STAMP = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:T([0-9]{2}:[0-9]{2})(:[0-9]{2})?(?:\.([0-9]{1,9}))?(Z|[+-][0-9]{2}:[0-9]{2})?)?",
    re.ASCII,
)


@dataclass(frozen=True)
class LogEntry:
    """A piece of output. `text` ends with a line feed unless the line goes on in the next entry. `stamp`: its time as
    it was written, RFC 3339 in UTC; `time_ns` the same, 0 where it is none."""

    text: bytes
    stderr: bool
    stamp: str
    time_ns: int


def parse_line(line: bytes) -> LogEntry | None:
    """Return the entry of a line; None where it is none."""
    found: Any = notation.decoded_json(line)
    if not isinstance(found, dict) or not isinstance(found.get("log"), str):
        return None
    stamp = found.get("time")
    stamp = stamp if isinstance(stamp, str) and _STAMP.fullmatch(stamp) else ""
    try:
        time_ns = stamp_ns(stamp) if stamp else 0
    except ValueError:
        stamp, time_ns = "", 0
    return LogEntry(found["log"].encode("utf-8", "replace"), found.get("stream") == "stderr", stamp, time_ns)


def stamp_ns(text: str) -> int:
    """Return the nanoseconds since 1970 of an RFC 3339 time; UTC where it names no zone. Raises ValueError."""
    match = _STAMP.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:40]!r} is not a time")
    day, minutes, seconds, fraction, zone = match.groups()
    whole = datetime.fromisoformat(f"{day}T{minutes or '00:00'}{seconds or ':00'}")
    offset = timedelta()
    if zone and zone != "Z":
        offset = timedelta(hours=int(zone[1:3]), minutes=int(zone[4:6])) * (-1 if zone[0] == "-" else 1)
    since = whole.replace(tzinfo=UTC) - offset - datetime(1970, 1, 1, tzinfo=UTC)
    return (since // timedelta(seconds=1)) * 10**9 + int((fraction or "0").ljust(9, "0"))


def parse_moment(text: str) -> int:
    """Return the nanoseconds since 1970 of a time as `logs --since` takes it: RFC 3339, seconds since 1970, or how long
    ago (10m, 1h30m). Raises UserInputError."""
    if seconds := _SECONDS.fullmatch(text):
        return int(seconds[1]) * 10**9 + int((seconds[2] or "0").ljust(9, "0"))
    duration = _DURATION.fullmatch(text)
    if text and duration is not None:
        hours, minutes, rest = duration.groups()
        ago_s = 3600 * int(hours or 0) + 60 * int(minutes or 0) + float(rest or 0)
        return time.time_ns() - round(ago_s * 1e9)
    try:
        return stamp_ns(text)
    except ValueError:
        raise UserInputError(
            f"'{text[:60]}' is not a time", hint="write it as 10m, 1h30m, 2026-01-31T12:00:00Z or seconds since 1970"
        ) from None


@dataclass(frozen=True)
class LogWishes:
    """The entries that are wanted. `tail`: the last ones only; None for all. Times in ns since 1970."""

    follow: bool = False
    tail: int | None = None
    since_ns: int = 0
    until_ns: int | None = None

    def wants(self, entry: LogEntry) -> bool:
        """Return whether an entry lies in the time that is wanted."""
        return entry.time_ns >= self.since_ns and (self.until_ns is None or entry.time_ns <= self.until_ns)


class _LogFiles:
    """The files of a log that may be rotated while they are read."""

    def __init__(self, folder: MachineFolder) -> None:
        self._folder = folder
        self._file: BufferedReader | None = None
        self._partial = b""

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def lines(self) -> Iterator[bytes]:
        """Yield the whole lines that are there and were not given yet, the oldest first."""
        if self._file is None and not self._open_after(None):
            return
        while True:
            assert self._file is not None
            yield from self._rest(self._file)
            here = os.fstat(self._file.fileno())
            if not self._open_after((here.st_dev, here.st_ino)):
                return

    def _rest(self, file: BufferedReader) -> Iterator[bytes]:
        while part := file.readline(_MOST_LINE):
            self._partial += part
            if part.endswith(b"\n"):
                yield self._partial
                self._partial = b""
            elif len(self._partial) > _MOST_LINE:  # no line of a supervisor's is so long
                self._partial = b""

    def _open_after(self, last: tuple[int, int] | None) -> bool:
        """Open the file that follows the one that was read; returns whether there is one."""
        there: list[BufferedReader] = [file for path in self._folder.logs if (file := _opened(path)) is not None]
        places = [(found.st_dev, found.st_ino) for found in (os.fstat(file.fileno()) for file in there)]
        # One that is gone was rotated out: what is left begins with the oldest.
        at = places.index(last) + 1 if last in places else 0
        wanted = there[at] if at < len(there) else None
        for file in there:
            if file is not wanted:
                file.close()
        if wanted is None:
            return False
        if self._file is not None:
            self._file.close()
        self._file, self._partial = wanted, b""
        return True


def _opened(path: Path) -> BufferedReader | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_uid not in (0, os.geteuid()):
        os.close(descriptor)
        return None
    return open(descriptor, "rb")  # noqa: PTH123


def entries(folder: MachineFolder, wishes: LogWishes, idle: Callable[[], None] = lambda: None) -> Iterator[LogEntry]:
    """Yield the entries of a machine's log. With `follow`, wait for more until the machine has ended, or the time that
    is wanted is over; `idle` is called before each wait."""
    files = _LogFiles(folder)
    try:
        alive = wishes.follow and folder.alive
        first = (entry for line in files.lines() if (entry := parse_line(line)) is not None and wishes.wants(entry))
        yield from first if wishes.tail is None else deque(first, wishes.tail)
        while alive and (wishes.until_ns is None or time.time_ns() < wishes.until_ns):
            idle()
            time.sleep(_LOOK_S)
            # It is asked first: what it wrote before its end is read after that.
            alive = folder.alive
            for line in files.lines():
                entry = parse_line(line)
                if entry is not None and wishes.wants(entry):
                    yield entry
    finally:
        files.close()
