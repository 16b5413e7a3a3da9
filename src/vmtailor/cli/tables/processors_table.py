# SPDX-License-Identifier: Apache-2.0
"""Tables of one image on several processors."""

from __future__ import annotations

from vmtailor.base import figures
from vmtailor.base.terminal import Table, TerminalConsole, Text
from vmtailor.base.text import plural
from vmtailor.model.architecture import named, names
from vmtailor.model.boots.comparison import PlatformFigure, ProcessorsCompared


def show(found: ProcessorsCompared, console: TerminalConsole, top: int) -> None:
    """Print the figures, and the symbols that only some of the kernels have."""
    table = Table(title="Figures", title_justify="left", title_style="bold", box=None, header_style="dim")
    table.add_column("")
    for one in found.platforms:
        table.add_column(f"{_title(one.architecture)}, {one.machine}", justify="right", no_wrap=True)
    table.add_row("bundle", *(one.name for one in found.platforms))
    table.add_row("kernel", *(one.kernel_version for one in found.platforms))
    table.add_row("verified", *("yes" if one.verified else "no" for one in found.platforms))
    for row in found.figures:
        table.add_row(row.name, *(_amount(row, value) for value in row.values))
    console.print(table)
    chosen = [one for one in found.differing if one.why]
    console.print(
        f"{plural(found.shared, 'symbol')} that all have; {plural(len(found.differing), 'symbol')} that only some have,"
        f" {len(chosen)} of them chosen"
    )
    if chosen:
        table = Table(
            title=f"What only some need ({min(top, len(chosen))} of {len(chosen)})",
            title_justify="left", title_style="bold", box=None, header_style="dim",
        )  # fmt: skip
        table.add_column("symbol", overflow="fold")
        for one in found.platforms:
            table.add_column(_title(one.architecture))
        table.add_column("why", overflow="fold")
        for symbol in chosen[:top]:
            table.add_row(symbol.symbol, *(value or "–" for value in symbol.has), Text(symbol.why, style="dim"))
        console.print(table)
    console.print("instructions are of different sets: side by side, and no verdict. Details: --json", style="dim")


def _title(architecture: str) -> str:
    return named(architecture).title if architecture in names() else architecture[:32]


def _amount(row: PlatformFigure, value: float | None) -> str:
    if value is None:
        return "–"
    if row.unit == "bytes":
        return figures.memory_bytes(value) if row.name.endswith("memory") else figures.file_bytes(value)
    return figures.short(value)
