# SPDX-License-Identifier: Apache-2.0
"""Watch a named machine that runs: its init starts our sampler in it, and its supervisor tells what it uses here."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from vmtailor.analysis.watches.columns import WatchColumns
from vmtailor.analysis.watches.sample_text import Key, SampleReader
from vmtailor.base.errors import GuestError, HostError
from vmtailor.base.text import is_number, plain
from vmtailor.drivers.host import control_socket
from vmtailor.drivers.host.control_socket import BrokenLine, FromSupervisor, ProgramExit, RequestRefused, exit_of
from vmtailor.drivers.host.machine_folders import MachineFolder
from vmtailor.model.machine import Clock
from vmtailor.model.machine_watch import MachineWatch, WatchedKind

#: Seconds beyond its time in which a sample must come; characters of what the guest says where it takes none.
_LATE_S, _MOST_SAID = 30.0, 300


def watch(folder: MachineFolder, every_ms: int, seconds: float) -> MachineWatch:
    """Return the record of a machine over so many seconds. It ends early with the machine, and with Ctrl-C.

    Raises NotRunning, RequestRefused for a machine of an older version, GuestError where no sample came."""
    reader, columns, notes = SampleReader(), WatchColumns(), list[str]()
    until = time.monotonic() + seconds
    try:
        for data in _sampled(folder, every_ms):
            samples = reader.feed(data)
            for number, sample in enumerate(samples, 1):
                columns.add(sample, _of_host(folder) if number == len(samples) else None)
            if samples and time.monotonic() >= until:
                break
        else:
            notes.append("the machine ended while it was watched")
    except KeyboardInterrupt:
        notes.append("the watch was ended by its user")
    if not len(columns):
        raise GuestError(f"no sample came from {folder.record.name}", hint=f"vmtailor logs {folder.record.name}")
    if reader.damaged:
        notes.append(f"{reader.damaged} lines of the sampler made no sense")
    return columns.record(
        folder.record.name,
        Clock.WALL,
        every_ms,
        containers=tuple(reader.containers.values()),
        notes=(*reader.notes, *notes),
    )


def _sampled(folder: MachineFolder, every_ms: int) -> Iterator[bytes]:
    """Yield the sampler's text as it comes, until the machine ends. Raises GuestError where the guest has none."""
    said, end = b"", ProgramExit(0)
    with control_socket.asked(folder, "sample", [("path", str(every_ms))]) as line, contextlib.suppress(BrokenLine):
        for kind, payload in control_socket.frames(line, every_ms / 1000 + _LATE_S):
            if kind == FromSupervisor.STDOUT:
                yield payload
            elif kind == FromSupervisor.STDERR:
                said = (said + payload)[:_MOST_SAID]
            elif kind == FromSupervisor.EXIT:
                end = exit_of(payload)
                break
    if end.code and not end.signal:
        words = plain(end.why or said.decode("utf-8", "replace").strip())
        raise GuestError(
            f"{folder.record.name} takes no samples: {words}",
            hint="fit the image again: its init is of an older version",
        )


def _of_host(folder: MachineFolder) -> dict[Key, int]:
    """Return what the monitor's process uses; empty once it has ended."""
    found: dict[Key, int] = {}
    with contextlib.suppress(HostError, RequestRefused):
        values = control_socket.answer(folder, "use")
        for key, figure, divisor in (("cpu-ns", "cpu_us", 1000), ("memory", "resident_bytes", 1)):
            text = values.get(key, "")
            if is_number(text) and len(text) < 20:
                found[WatchedKind.HOST, "", figure] = int(text) // divisor
    return found
