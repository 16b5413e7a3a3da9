# SPDX-License-Identifier: Apache-2.0
"""The parts of a system with an init of its own, as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vmtailor.base.figures import file_bytes
from vmtailor.base.terminal import BREAK, Table, TerminalConsole, Text, box
from vmtailor.base.text import plural
from vmtailor.model.architecture import named
from vmtailor.model.systems.system import DiskLayout, InstalledKernel, System

#: Rows of each list, unless all are asked for.
MOST_ROWS = 12
_ALL = 1 << 30


def show(found: System, console: TerminalConsole, *, everything: bool = False) -> None:
    """Print the parts of the system."""
    most = _ALL if everything else MOST_ROWS
    system = found.os.pretty_name or found.os.id or "no os-release"
    console.print(Text.assemble((system, "bold"), f", {named(found.architecture).title}"), soft_wrap=True)
    _facts(found, console)
    if found.disk is not None:
        _disk(found.disk, console)
    _kernels(found, console)
    _entries(found, console, most)
    if found.mounts:
        rows = [(m.place, m.device, m.type, ",".join(m.options)) for m in found.mounts]
        _table("/etc/fstab", ("mounted on", "device", "type", "options"), rows, console)
    _units(found, console, most)
    for sentence in found.notes:
        console.print(Text.assemble(("note: ", "bold yellow"), sentence), soft_wrap=True)


def _facts(found: System, console: TerminalConsole) -> None:
    init = found.init
    leads = "" if init.program == init.path else f" → {init.program}"
    console.print(Text.assemble(("init    ", "dim"), f"{init.path}{leads} ({init.kind})"), soft_wrap=True)
    if found.default_target:
        console.print(Text.assemble(("target  ", "dim"), found.default_target), soft_wrap=True)
    kernel = found.kernel or "none inside: a machine for it takes a packaged one"
    console.print(Text.assemble(("kernel  ", "dim"), kernel), soft_wrap=True)
    entry = found.entry
    if entry is not None:
        console.print(Text.assemble(("words   ", "dim"), " ".join(entry.words)), soft_wrap=True)


def _disk(disk: DiskLayout, console: TerminalConsole) -> None:
    table = "one file system" if not disk.partitions else str(disk.table).upper()
    start = " and ".join(name.upper() for name in disk.firmware)
    starts = f"starts from {start}" if start else "no loader of its own: it is booted with a kernel from outside"
    console.print(
        Text.assemble(("disk    ", "dim"), f"{disk.format}, {file_bytes(disk.size_bytes)}, {table}; {starts}"),
        soft_wrap=True,
    )
    rows = [
        (
            str(one.number), file_bytes(one.size_bytes), one.content or "unknown", one.label,
            "/" if one.number == disk.root else "/boot" if one.number == disk.boot else "",
        )
        for one in disk.partitions
    ]  # fmt: skip
    _table("partitions", ("number", "size", "content", "label", "mounted on"), rows, console)


def _kernels(found: System, console: TerminalConsole) -> None:
    rows = [
        (f"{one.release}{' *' if one.release == found.kernel else ''}", *_sizes(one)) for one in reversed(found.kernels)
    ]
    _table("kernels (* starts)", ("release", "image", "initial RAM disk", "modules", "configuration"), rows, console)


def _sizes(one: InstalledKernel) -> tuple[str, str, str, str]:
    modules = f"{one.modules}, {file_bytes(one.modules_bytes)}" if one.modules else "none"
    initrd = file_bytes(one.initrd_bytes) if one.initrd else "none"
    return file_bytes(one.image_bytes) if one.image else "none", initrd, modules, "there" if one.config else "none"


def _entries(found: System, console: TerminalConsole, most: int) -> None:
    rows = [(f"{one.title}{' *' if one.chosen else ''}", one.kernel, " ".join(one.words)) for one in found.entries]
    _table("loader entries (* starts)", ("title", "kernel", "command line"), _cut(rows, most), console)


def _units(found: System, console: TerminalConsole, most: int) -> None:
    rows = [(one.name, one.wanted_by) for one in found.units]
    _table(f"starts by itself: {plural(len(rows), 'unit', 'units')}", ("unit", "wanted by"), _cut(rows, most), console)
    if found.masked:
        console.print(Text.assemble(("masked  ", "dim"), ", ".join(found.masked)), soft_wrap=True)


def _cut(rows: Sequence[tuple[str, ...]], most: int) -> Sequence[tuple[str, ...]]:
    if len(rows) <= most:
        return rows
    return [*rows[:most], (f"… and {len(rows) - most} more (--all)", *("" for _ in rows[0][1:]))]


def _table(title: str, columns: Iterable[str], rows: Iterable[tuple[str, ...]], console: TerminalConsole) -> None:
    rows = list(rows)
    if not rows:
        return
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        header_style="dim",
    )
    for number, name in enumerate(columns):
        table.add_column(name, overflow="fold", no_wrap=number == 0)
    for row in rows:
        table.add_row(*row)
    console.print(BREAK, end="")
    console.print(table)
