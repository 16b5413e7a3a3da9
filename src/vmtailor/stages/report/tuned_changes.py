# SPDX-License-Identifier: Apache-2.0
"""Named changes beside the kernel, a row each, and as part of the document of `fit --json`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from vmtailor.base import figures
from vmtailor.model.change import Effect, Figure
from vmtailor.model.fit_run import FitRun
from vmtailor.model.systems.kept_changes import words_of

MEANING = (
    "seconds that ready comes earlier or later, or instructions a request, on the instruction clock, each alone on the "
    "fitted machine"
)


@dataclass(frozen=True)
class TunedRow:
    """One change: its id, its description, its words, and its result."""

    id: str
    does: str
    settings: str
    expected: str
    measured: str
    outcome: str
    kept: bool


def rows(run: FitRun) -> Iterator[TunedRow]:
    """Yield the changes that the machine has, then the others."""
    if run.tuned is None:
        return
    for one in (*run.tuned.kept, *run.tuned.others):
        yield TunedRow(
            id=one.id, does=one.does, settings=", ".join(words_of(one)), expected=_signed(one.expects(Figure.READY)),
            measured=_signed(one.measured[0] if one.measured else None), outcome=run.tuned.outcome(one),
            kept=one in run.tuned.kept,
        )  # fmt: skip


def _signed(found: Effect | None) -> str:
    if found is None:
        return figures.NONE
    text = f"{found.value:+.3f}{figures.NARROW_SPACE}s" if found.unit == "s" else f"{found.value:+,.0f}"
    return text.replace("-", "−")


def document(run: FitRun) -> list[dict[str, Any]] | None:
    """Return the changes for programs; None when none was named."""
    if run.tuned is None:
        return None
    return [
        {
            "change": one.id,
            "settings": list(words_of(one)),
            "kept": one in run.tuned.kept,
            "outcome": run.tuned.outcome(one),
            "expected_s": _seconds(one.expects(Figure.READY)),
            "measured_s": _seconds(one.measures(Figure.READY)),
            "measured": {effect.figure: effect.value for effect in one.measured},
        }
        for one in (*run.tuned.kept, *run.tuned.others)
    ]


def _seconds(found: Effect | None) -> float | None:
    return None if found is None else found.value
