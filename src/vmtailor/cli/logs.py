# SPDX-License-Identifier: Apache-2.0
"""`vmtailor logs`: the output of a named machine's container."""

from __future__ import annotations

import os
import select
from typing import Annotated

from vmtailor.base.errors import UserInputError
from vmtailor.base.text import is_number
from vmtailor.drivers.host import machine_log
from vmtailor.drivers.host.machine_folders import MachineFolders
from vmtailor.drivers.host.machine_log import LogEntry, LogWishes
from vmtailor.model.option import Option
from vmtailor.model.option_rows import MACHINE

#: Bytes that are collected before they are written.
_ENOUGH = 64 << 10


def _tail(text: str) -> int | None:
    if text == "all":
        return None
    if not is_number(text) or len(text) > 9:
        raise UserInputError(f"--tail: '{text[:40]}' is not a number of lines", hint="a number, or all")
    return int(text)


def logs(
    name: Annotated[str, MACHINE],
    follow: Annotated[
        bool, Option(name="--follow", short="-f", type=bool, help="Wait for more until the machine has ended.")
    ] = False,
    tail: Annotated[
        int | None, Option(name="--tail", short="-n", read=_tail, metavar="LINES", help="Print the last lines alone.")
    ] = None,
    since: Annotated[
        int,
        Option(
            name="--since", read=machine_log.parse_moment, metavar="TIME",
            help="Print output since then: 10m, 2026-01-31T12:00:00Z, or seconds since 1970.",
        ),
    ] = 0,
    until: Annotated[
        int | None,
        Option(name="--until", read=machine_log.parse_moment, metavar="TIME", help="Print output until then."),
    ] = None,
    timestamps: Annotated[
        bool, Option(name="--timestamps", short="-t", type=bool, help="Print the time of each line before it.")
    ] = False,
) -> None:  # fmt: skip
    """Print what a named machine's container has printed, each stream on its own, as it was printed.

    The last 30 MB are kept, in three files. Escape sequences of the container are passed on, as docker does."""
    folder = MachineFolders().find(name)
    wishes = LogWishes(follow=follow, tail=tail, since_ns=since, until_ns=until)
    printer = _Printer(timestamps)
    for entry in machine_log.entries(folder, wishes, idle=printer.flush):
        printer.put(entry)
    printer.flush()


class _Printer:
    """Writes entries on the streams that they were printed on, many at once."""

    def __init__(self, timestamps: bool) -> None:
        self._timestamps = timestamps
        self._held = bytearray()
        self._stream = 1
        self._within = {1: False, 2: False}

    def put(self, entry: LogEntry) -> None:
        stream = 2 if entry.stderr else 1
        if stream != self._stream or len(self._held) > _ENOUGH:
            self.flush()
            self._stream = stream
        if self._timestamps and not self._within[stream]:  # a line that goes on has its time already
            self._held += f"{entry.stamp} ".encode()
        self._within[stream] = not entry.text.endswith(b"\n")
        self._held += entry.text

    def flush(self) -> None:
        """Write what is held."""
        view = memoryview(bytes(self._held))
        self._held.clear()
        while view:
            try:
                view = view[os.write(self._stream, view) :]
            except BlockingIOError:
                select.select([], [self._stream], [], 1.0)
