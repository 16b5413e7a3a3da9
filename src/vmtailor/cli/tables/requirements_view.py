# SPDX-License-Identifier: Apache-2.0
"""Known requirements of a program on a kernel, and whether they are met, as text and as a JSON document."""

from __future__ import annotations

from typing import Any

from vmtailor.analysis.explain.requirements import HeldAgainst, Level, Met, RequirementAnswer, SymbolStanding
from vmtailor.base import figures
from vmtailor.base.terminal import BREAK, Column, Table, TerminalConsole, Text
from vmtailor.base.text import plural

SCHEMA = "vmtailor/requirements/1"
_MARKS = {
    Met.MET: ("✓", "green"),
    Met.INSTEAD: ("✓", "green"),
    Met.MISSING: ("✗", "bold red"),
    Met.AGAINST: ("✗", "bold red"),
}


def document(held: HeldAgainst) -> dict[str, Any]:
    """Return all answers as one JSON document."""
    return {
        "schema": SCHEMA,
        "program": held.program.name,
        "source": held.program.source,
        "kernel": held.kernel,
        "version": held.version,
        "traced": held.traced,
        "requirements": [
            {
                "id": one.requirement.id,
                "level": one.requirement.level.value,
                "standing": one.met.value,
                "need": one.requirement.need,
                "without": one.requirement.without,
                "instead": list(one.requirement.instead),
                "used": one.used if held.traced else None,
                "instructions": one.instructions,
                "symbols": [
                    {
                        "symbol": s.name, "value": s.value or None, "used": s.used or None,
                        "reference": s.reference or None, "instructions": s.instructions,
                    }
                    for s in one.symbols
                ],
            }
            for one in held.answers
        ],
    }  # fmt: skip


def show(held: HeldAgainst, console: TerminalConsole) -> None:
    """Print the requirements by level: missing ones in full, met ones in a line."""
    missing = [f"{len(held.lacking(level))} {level}" for level in Level if held.lacking(level)]
    kernel = f"{held.kernel} ({held.version})" if held.version else held.kernel
    head = (
        f"missing for {held.program.name}: {', '.join(missing)}" if missing else f"all of {held.program.name} is there"
    )
    console.print(Text.assemble((head, "bold"), (f"  in {kernel}", "dim")))
    for level in Level:
        answers = [one for one in held.answers if one.requirement.level is level]
        if answers:
            console.print(Text.assemble(BREAK, (level.value, "bold")))
            console.print(_table(held, answers))
    console.print(Text(f"after {held.program.source}; only reported: nothing is kept because of it", "dim"))
    if not held.traced:
        console.print(Text("a configuration alone: what is used and what it costs is known of bundles", "dim"))


def _table(held: HeldAgainst, answers: list[RequirementAnswer]) -> Table:
    table = Table.grid(Column(no_wrap=True), Column(ratio=3), Column(ratio=2), padding=(0, 2))
    for one in answers:
        mark, style = _MARKS[one.met]
        table.add_row(Text(mark, style), _symbols(one), Text(_price(held, one), "dim"))
        row = one.requirement
        lacks = one.met in (Met.MISSING, Met.AGAINST)
        table.add_row("", Text(row.need, "dim"), Text(f"without: {row.without}", "yellow") if lacks else Text(""))
    return table


def _symbols(one: RequirementAnswer) -> Text:
    said = Text()
    for symbol in one.symbols:
        style = "" if symbol.value in ("y", "m") or one.requirement.value == "n" else "yellow"
        said.append(f"{_value(symbol)} ", style)
    return said


def _value(symbol: SymbolStanding) -> str:
    return f"{symbol.name}={symbol.value}" if symbol.value else f"{symbol.name} (not in this source)"


def _price(held: HeldAgainst, one: RequirementAnswer) -> str:
    words = []
    if held.traced:
        used = [symbol for symbol in one.symbols if symbol.used]
        words.append(f"asked for: {used[0].reference}" if used else "the trace did not ask for it")
    if one.instructions is not None:
        there = any(symbol.value in ("y", "m") for symbol in one.symbols)
        when = "to ready" if there else "on the baseline"
        words.append(f"{plural(len(one.symbols), 'symbol')}, {figures.short(one.instructions)} instructions {when}")
    return "; ".join(words)
