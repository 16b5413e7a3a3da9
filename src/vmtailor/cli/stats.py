# SPDX-License-Identifier: Apache-2.0
"""`vmtailor stats`: what named machines use."""

from __future__ import annotations

import sys
import time
from typing import Annotated

from vmtailor.base import figures
from vmtailor.base.errors import VmtailorError
from vmtailor.base.terminal import TerminalConsole
from vmtailor.cli.each import Failures
from vmtailor.cli.tables import column_lines
from vmtailor.drivers.host.control_socket import NotRunning
from vmtailor.drivers.host.machine_folders import MachineFolder, MachineFolders
from vmtailor.model.option import Option
from vmtailor.model.option_rows import FORMAT, MACHINES, NO_TRUNC
from vmtailor.pipeline import machine_control
from vmtailor.pipeline.machine_control import MachineUse

COLUMNS = ("ID", "Name", "CPUPerc", "MemUsage", "MemPerc", "HostMem", "PIDs")
#: Seconds between two looks.
_LOOK_S = 1.0


def stats(
    names: Annotated[tuple[str, ...], MACHINES] = (),
    no_stream: Annotated[
        bool, Option(name="--no-stream", type=bool, help="Print the figures once, of one second.")
    ] = False,
    no_trunc: Annotated[bool, NO_TRUNC] = False,
    format_: Annotated[str, FORMAT] = "table",
) -> None:
    """Show what named machines use, once a second: all that run, or those that are named.

    CPU % is of the machine's process on this host, where 100 is one processor. MEM USAGE is the guest's, where its init
    can tell; HOST MEM is the memory of the machine's process."""
    folders, failures = MachineFolders(), Failures()
    chosen: list[MachineFolder] = []
    for name in names:
        with failures.noted():
            chosen.append(folders.find(name))
    before: dict[str, MachineUse] = {}
    console = TerminalConsole()
    while not names or chosen:
        found = chosen if names else [folder for folder in folders.every() if folder.state().running]
        now = _uses(found, failures if names else None)
        if before or not found:
            if not no_stream and sys.stdout.isatty():
                console.clear()
            rows = [
                row(folder, now[folder.record.id], before, whole=no_trunc)
                for folder in found
                if folder.record.id in now
            ]
            column_lines.show(rows, COLUMNS, format_)
            if no_stream:
                break
        before = now
        time.sleep(_LOOK_S)
    failures.leave()


def _uses(found: list[MachineFolder], failures: Failures | None) -> dict[str, MachineUse]:
    uses: dict[str, MachineUse] = {}
    for folder in list(found):
        try:
            uses[folder.record.id] = machine_control.use(folder)
        except VmtailorError as error:
            if failures is not None:
                failures.add(error)
                found.remove(folder)  # one that has ended is told of once
            elif not isinstance(error, NotRunning):
                raise
    return uses


def row(folder: MachineFolder, now: MachineUse, before: dict[str, MachineUse], *, whole: bool) -> dict[str, str]:
    """Return the row of a machine; `before` has the figures of the last look."""
    record, last = folder.record, before.get(folder.record.id)
    share = None
    if last is not None and now.at_ns > last.at_ns:
        share = max(0.0, 100 * (now.cpu_ns - last.cpu_ns) / (now.at_ns - last.at_ns))
    used, limit = now.guest_bytes, record.memory_bytes
    return {
        "ID": record.id if whole else record.short_id,
        "Name": record.name,
        "CPUPerc": "--" if share is None else f"{share:.2f}%",
        "MemUsage": f"{_size(used)} / {_size(limit)}",
        "MemPerc": f"{100 * used / limit:.2f}%" if used is not None and limit else "--",
        "HostMem": _size(now.memory_bytes),
        "PIDs": "--" if now.processes is None else str(now.processes),
    }


def _size(value: int | None) -> str:
    return "--" if value is None else figures.memory_bytes(value).replace(figures.NARROW_SPACE, "")
