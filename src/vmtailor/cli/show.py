# SPDX-License-Identifier: Apache-2.0
"""`vmtailor show`: show the parts of a system with an init of its own, without starting it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

from vmtailor.base import output
from vmtailor.base.cache.store import Store
from vmtailor.base.figures import file_bytes
from vmtailor.base.files import records
from vmtailor.base.terminal import BREAK, Column, Table, TerminalConsole, Text, box
from vmtailor.base.text import plural
from vmtailor.model.architecture import named
from vmtailor.model.option import Option, Suggests
from vmtailor.model.option_rows import JSON, PARTITION
from vmtailor.model.systems.system import DiskLayout, InstalledKernel, System
from vmtailor.pipeline.systems import subjects


def show(
    subject: Annotated[
        str,
        Option(
            name="SUBJECT",
            suggests=Suggests.IMAGES,
            help="Show disk:FILE (raw or qcow2), rootfs:DIR, rootfs:ARCHIVE (a tar), an image whose entry point is an "
            "init, or a path.",
        ),
    ],
    partition: Annotated[int | None, PARTITION] = None,
    init: Annotated[
        str,
        Option(name="--init-path", former=("--init",), help="Use this init, if it is in no usual place."),
    ] = "",
    all_: Annotated[
        bool, Option(name="--all", type=bool, help="Show every unit and loader entry, not only the first ones.")
    ] = False,
    json: Annotated[bool, JSON] = False,
) -> None:
    """Show what a system with an init of its own consists of: kernels, loader, mounts, init and units.

    Nothing is started, mounted or written, and root is not needed. A system that cannot be fitted is refused with the
    reason: an unknown or encrypted file system, one that was not shut down, another processor, no kernel."""
    with subjects.opened(subject, Store(), partition=partition, init=init) as found:
        read = found.subject
    if json:
        output.json_bytes([records.to_bytes(read)])
    else:
        show_parts(read, TerminalConsole(), everything=all_)


#: Rows of each list, unless all are asked for.
MOST_ROWS = 12
_ALL = 1 << 30


def show_parts(found: System, console: TerminalConsole, *, everything: bool = False) -> None:
    """Print the parts of the system."""
    most = _ALL if everything else MOST_ROWS
    system = found.os.pretty_name or found.os.id or "no os-release"
    console.print(Text.assemble((system, "bold"), f", {named(found.architecture).title}"), soft_wrap=True)
    _show_facts(found, console)
    if found.disk is not None:
        _show_disk(found.disk, console)
    _show_kernels(found, console)
    _show_entries(found, console, most)
    if found.mounts:
        rows = [(m.place, m.device, m.type, ",".join(m.options)) for m in found.mounts]
        _list("/etc/fstab", ("mounted on", "device", "type", "options"), rows, console)
    _show_units(found, console, most)
    for sentence in found.notes:
        console.print(Text.assemble(("note: ", "bold yellow"), sentence), soft_wrap=True)


def _show_facts(found: System, console: TerminalConsole) -> None:
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


def _show_disk(disk: DiskLayout, console: TerminalConsole) -> None:
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
    _list("partitions", ("number", "size", "content", "label", "mounted on"), rows, console)


def _show_kernels(found: System, console: TerminalConsole) -> None:
    rows = [
        (f"{one.release}{' *' if one.release == found.kernel else ''}", *_sizes(one)) for one in reversed(found.kernels)
    ]
    _list("kernels (* starts)", ("release", "image", "initial RAM disk", "modules", "configuration"), rows, console)


def _sizes(one: InstalledKernel) -> tuple[str, str, str, str]:
    modules = f"{one.modules}, {file_bytes(one.modules_bytes)}" if one.modules else "none"
    initrd = file_bytes(one.initrd_bytes) if one.initrd else "none"
    return file_bytes(one.image_bytes) if one.image else "none", initrd, modules, "there" if one.config else "none"


def _show_entries(found: System, console: TerminalConsole, most: int) -> None:
    rows = [(f"{one.title}{' *' if one.chosen else ''}", one.kernel, " ".join(one.words)) for one in found.entries]
    _list("loader entries (* starts)", ("title", "kernel", "command line"), _cut(rows, most), console)


def _show_units(found: System, console: TerminalConsole, most: int) -> None:
    rows = [(one.name, one.wanted_by) for one in found.units]
    _list(f"starts by itself: {plural(len(rows), 'unit', 'units')}", ("unit", "wanted by"), _cut(rows, most), console)
    if found.masked:
        console.print(Text.assemble(("masked  ", "dim"), ", ".join(found.masked)), soft_wrap=True)


def _cut(rows: Sequence[tuple[str, ...]], most: int) -> Sequence[tuple[str, ...]]:
    if len(rows) <= most:
        return rows
    return [*rows[:most], (f"… and {len(rows) - most} more (--all)", *("" for _ in rows[0][1:]))]


def _list(title: str, columns: Iterable[str], rows: Iterable[tuple[str, ...]], console: TerminalConsole) -> None:
    rows = list(rows)
    if not rows:
        return
    table = Table(
        *(Column(name, overflow="fold", no_wrap=number == 0) for number, name in enumerate(columns)),
        title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False,
        header_style="dim",
    )  # fmt: skip
    for row in rows:
        table.add_row(*row)
    console.print(BREAK, end="")
    console.print(table)
