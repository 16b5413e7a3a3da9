# SPDX-License-Identifier: Apache-2.0
"""Tables of a kernel's cost until init, for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from vmtailor.analysis.cost.loops import LoopNames
from vmtailor.base.figures import millions, percent
from vmtailor.base.terminal import Column, Table, TerminalConsole, Text, box
from vmtailor.base.verb_end import VerbEnd, show_end
from vmtailor.model.boots.boot_cost import BootCost

#: Rows of each table; all are in the record.
MOST = 20
#: Said where the compiler arranges code otherwise beside debug information.
WHOLE = "functions count as a whole: what was inlined into one counts as its own, under the symbol of its begin"


def show_cost(cost: BootCost, out: Path, console: TerminalConsole, loops: Sequence[LoopNames] = ()) -> None:
    """Print the symbols, initcalls and functions that cost most, and how the rows add up. `loops`: waits that exist
    only in an emulated machine; they are listed apart, without a share."""
    emulated = {name for loop in loops for name in loop.functions}
    waited = [f for f in cost.functions if f.function in emulated]
    counted = [f for f in cost.functions if f.function not in emulated]
    idle = sum(f.instructions for f in waited)
    net = cost.total - idle
    console.print(Text(f"{cost.release}: {millions(cost.total)} instructions from kernel entry to init", style="bold"))
    if waited:
        names = ", ".join(f.function for f in waited)
        console.print(Text(f"{millions(net)} of them net of loops that only emulation causes ({names})"))
    symbols = [(f"CONFIG_{s.symbol}", s.instructions, ", ".join(s.functions)) for s in cost.symbols]
    _table("configuration symbols", ("symbol", "mostly in"), symbols, net, console)
    initcalls = [(i.name, i.instructions, _place(i.file, i.symbol)) for i in cost.initcalls]
    _table("initcalls, with all they called", ("initcall", "file"), initcalls, net, console)
    functions = [(f.function, f.instructions, _place(f.file, f.symbol)) for f in counted]
    _table("functions themselves", ("function", "file"), functions, net, console)
    parts = [
        ("code under a configuration symbol", sum(f.instructions for f in counted if f.symbol)),
        ("code that is always built", sum(f.instructions for f in counted if not f.symbol)),
        ("loops that only emulation causes", idle),
        ("helpers in user space that the kernel started", cost.user),
        ("before the kernel runs where it is linked, and firmware that it calls", cost.early),
        ("no debug information", cost.unknown),
    ]
    table = Table(
        "", Column(justify="right"), Column(justify="right"),
        title="the sum", title_justify="left", box=box.SIMPLE_HEAD, title_style="bold", show_header=False,
    )  # fmt: skip
    for name, count in parts:
        table.add_row(name, millions(count), percent(count, cost.total))
    table.add_row("total", millions(sum(count for _, count in parts)), percent(cost.total, cost.total), style="bold")
    console.print(table)
    if cost.helpers.count:
        each = f"{cost.helpers.count} helpers, each {millions(cost.helpers.each)} from its request to its end"
        console.print(Text(f"{each}; {cost.helpers.for_tests} of them for self-tests"))
    if cost.whole_functions:
        console.print(Text(WHOLE, style="dim"))
    console.print(Text(f"before it, firmware and decompression: {millions(cost.before_kernel)}", style="dim"))
    show_end(VerbEnd(files=(("all rows", f"{out}/cost.json"),)), console)


def _place(file: str, symbol: str) -> str:
    return f"{file} ({symbol})" if symbol else f"{file} (always built)" if file else ""


def _table(
    title: str, heads: tuple[str, str], rows: Iterable[tuple[str, int, str]], total: int, console: TerminalConsole
) -> None:
    table = Table(
        Column(heads[0], overflow="fold"), Column("instructions", justify="right"), Column("share", justify="right"),
        Column(heads[1], overflow="fold", style="dim"),
        title=title, title_justify="left", box=box.SIMPLE_HEAD, title_style="bold",
    )  # fmt: skip
    for name, count, where in list(rows)[:MOST]:
        table.add_row(name, millions(count), percent(count, total), where)
    console.print(table)
