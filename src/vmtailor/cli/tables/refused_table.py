# SPDX-License-Identifier: Apache-2.0
"""Tables of the refused calls of a watched run. They go to standard error, since standard output is the container's."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from vmtailor.analysis.demands.refusals import Refused
from vmtailor.base.figures import grouped
from vmtailor.base.terminal import BREAK, Column, Table, TerminalConsole, Text, box, folding
from vmtailor.base.text import plural
from vmtailor.base.verb_end import NextCommand, VerbEnd, show_end
from vmtailor.pipeline.run_watch import WatchedRun

#: Rows of each table; the record has all.
MOST_ROWS = 30
_MOST_CHARACTERS = 160


def show(found: WatchedRun, bundle: Path, saved: Path | None) -> None:
    """Print the refused calls, the ways to bring their symbols in, and the calls that nothing explains."""
    console = TerminalConsole(stderr=True, width=None if sys.stderr.isatty() else 160)
    explained, unexplained = found.explained, found.unexplained
    if explained:
        calls = plural(len(explained), "kind of call was", "kinds of calls were")
        console.print(Text(f"vmtailor: {calls} refused that the baseline would have given", "bold yellow"))
        console.print(_table(explained, "needs"))
        show_end(VerbEnd(commands=(NextCommand("Bring them in", _command(found, bundle, saved)),)), console)
    else:
        console.print(Text("vmtailor: nothing was refused that the baseline would have given", "bold"))
    if unexplained:
        calls = plural(len(unexplained), "kind of call", "kinds of calls")
        says = "would fail on the baseline, too, as far as the source tells"
        if not found.by_source:
            says = "the kernel's source is not in this host's cache, so nothing more can be said of them"
        console.print(Text.assemble(BREAK, (f"{calls} failed besides: {says}", "bold")), soft_wrap=True)
        console.print(_table(unexplained, "note"))
    for sentence in _doubts(found):
        console.print(Text(sentence, "dim"), soft_wrap=True)


def _table(rows: Sequence[Refused], last: str) -> Table:
    noted = last == "needs" or any(row.also for row in rows)
    times = Column("times", justify="right", no_wrap=True)
    columns = (*folding("program", "call", "error"), times, *(folding(last) if noted else ()))
    table = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="dim")
    for row in rows[:MOST_ROWS]:
        call = row.call
        cells = [_short(call.task), _short(f"{call.name}({call.arguments})"), _short(call.error), grouped(call.count)]
        table.add_row(*cells, *([", ".join(row.symbols) or row.also] if noted else []))
    if len(rows) > MOST_ROWS:
        table.add_row("…", f"and {len(rows) - MOST_ROWS} more")
    return table


def _short(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"


def _command(found: WatchedRun, bundle: Path, saved: Path | None) -> list[str]:
    words = ["vmtailor", "refit", str(bundle)]
    if saved is not None:
        return [*words, "--observed", str(saved)]
    return [*words, *(word for name in found.symbols for word in ("--keep", name))]


def _doubts(found: WatchedRun) -> list[str]:
    sentences = []
    if not found.observed.whole:
        sentences.append("the machine ended before its init could give the last counts: there may have been more")
    if found.observed.untold:
        sentences.append(f"{grouped(found.observed.untold)} refused calls of further kinds are not told apart")
    return sentences
