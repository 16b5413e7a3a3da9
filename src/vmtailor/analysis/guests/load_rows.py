# SPDX-License-Identifier: Apache-2.0
"""Stages of a load as rows of text, for terminal, page and documentation."""

from __future__ import annotations

from vmtailor.base import figures
from vmtailor.model.boots.load_result import ABOVE, SHARES, LoadStage

#: The columns of a stage.
HEADS = ("rate", "a second", "right", "failed", *(f"p{100 * share:g}" for share in SHARES), "most", "held")
LEGEND = f"latency from the moment at which a request was to begin; a percentile needs {ABOVE} answers that took longer"


def row(stage: LoadStage) -> tuple[str, ...]:
    """Return a stage in the columns HEADS."""
    times = [stage.latencies.at(share) for share in SHARES]
    most = stage.latencies.most_ns if stage.right else None
    return (
        figures.grouped(stage.rate) if stage.rate is not None else "at once",
        figures.grouped(stage.achieved),
        figures.grouped(stage.right),
        figures.grouped(stage.failed),
        *(figures.microseconds(None if time is None else time / 1e3) for time in (*times, most)),
        "" if stage.rate is None else "yes" if stage.held else "no",
    )
