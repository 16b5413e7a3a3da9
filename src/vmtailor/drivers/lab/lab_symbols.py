# SPDX-License-Identifier: Apache-2.0
"""The functions of the lab's kernel and of its modules. Packaged kernels come without a table of symbols, so the lab is
asked: its addresses are the same at each boot."""

from __future__ import annotations

from pathlib import Path

from vmtailor.base.errors import HostError
from vmtailor.base.files import temporary
from vmtailor.drivers.lab.lab_monitor import disk_name, drain, entries, outer_machine, read_console
from vmtailor.drivers.monitors import lab_folder, monitors
from vmtailor.drivers.monitors.lab_folder import Lab
from vmtailor.drivers.monitors.monitor import Orders, Wants
from vmtailor.drivers.rootfs.rootfs import build
from vmtailor.model.architecture import named
from vmtailor.model.machine import Machine
from vmtailor.model.plan import RootFormat

#: Room for the table, and host seconds in which the lab gives it, on a busy host.
_ROOM, _PATIENCE_S = 64 << 20, 900.0
_END = b"end\n"


def read(lab: Lab, folder: Path) -> bytes:
    """Start the lab, and return its table of functions: lines of address, kind and name, and of a module its name in
    brackets. Raises HostError with the lab's words where it does not give one."""
    board = named(lab.architecture).usual
    asker = Machine(architecture=lab.architecture, board=board, memory_bytes=64 << 20)
    orders = Orders(("sh", "-c", f"{{ cat /proc/kallsyms && echo end; }} > {disk_name(0)}"))
    console = bytearray()
    with temporary.held_folder() as scratch:
        out = scratch / "symbols"
        with out.open("wb") as file:
            file.truncate(_ROOM)
        build(None, scratch / "orders", RootFormat.EXT4, entries(orders, asker, None))
        outer = outer_machine(lab, folder, scratch / "orders", asker, out)
        with monitors.of(outer).start(outer, Wants(attendant=True)) as running:
            running.wait(_PATIENCE_S)
            drain(running.serial, console)
        found = out.read_bytes().rstrip(b"\0")
    said = read_console(console.decode("utf-8", "replace"))
    if said.status != 0 or not found.endswith(_END):
        words = "\n".join((said.lost, *said.said)).strip()
        raise HostError(
            "the lab gives no table of its kernel's functions",
            hint=f"{lab_folder.make_command(lab.architecture)} builds it anew",
            details=words,
        )
    lines = found.removesuffix(_END).splitlines(keepends=True)
    functions = (line for line in lines if line[17:19].upper() == b"T " and not line.startswith(b"__pfx_", 19))
    return b"".join(functions)
