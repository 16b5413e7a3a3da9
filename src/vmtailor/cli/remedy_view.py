# SPDX-License-Identifier: Apache-2.0
"""`vmtailor explain` of a remedy of the catalogue: what it is, and how it is tried."""

from __future__ import annotations

from typing import Any

from vmtailor.analysis.changes import change_catalogue, trial_hardware
from vmtailor.analysis.changes.change_catalogue import SPOKEN, Candidate, KnownChange
from vmtailor.base.terminal import BREAK, TerminalConsole, Text


def find(name: str) -> KnownChange | None:
    """Return the remedy of an id, its own or one of its trials'; None for any other name."""
    return next(
        (
            entry
            for entry in change_catalogue.catalogue()
            if name in (entry.id, *(one.change.id for one in entry.trials))
        ),
        None,
    )


def document(entry: KnownChange, name: str, schema: str) -> dict[str, Any]:
    """Return the answer as a JSON document."""
    return {
        "schema": schema,
        "what": name,
        "kind": "remedy",
        "summary": entry.title,
        "costs": entry.costs,
        "risk": entry.risk,
        "changes": [{"kind": way.kind.value, "what": way.what} for way in entry.ways],
        "trials": [
            {"id": one.change.id, "does": one.change.does, "hardware": list(one.hardware)} for one in entry.trials
        ],
        "untried": entry.untried,
    }


def show(entry: KnownChange, console: TerminalConsole) -> None:
    """Print the answer for a person."""
    console.print(Text.assemble((entry.title, "bold"), (f"  {entry.id}", "dim")))
    for title, text in (("looks like", entry.looks), ("costs because", entry.costs), ("risk", entry.risk)):
        console.print(Text.assemble((f"  {title}  ", "cyan"), text))
    for way in entry.ways:
        console.print(Text.assemble((f"  {SPOKEN[way.kind]}  ", "cyan"), way.what))
    if entry.untried:
        console.print(Text.assemble(BREAK, ("no trial is possible: ", "yellow"), entry.untried))
        return
    console.print(Text.assemble(BREAK, ("tried by", "bold")))
    for one in entry.trials:
        console.print(Text.assemble(f"  --try {one.change.id}  ", (_said(one), "dim")), soft_wrap=True)


def _said(one: Candidate) -> str:
    both = f" (both machines {trial_hardware.words_for(one.hardware)})" if one.hardware else ""
    only = f" (for {', '.join(one.processors)})" if one.processors else ""
    return f"{one.change.does}{both}{only}"
