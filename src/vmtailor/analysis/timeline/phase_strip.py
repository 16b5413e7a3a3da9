# SPDX-License-Identifier: Apache-2.0
"""Draw the phases of a boot to scale, once for terminals and pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vmtailor.model.boots.timeline import PhaseSpan


@dataclass(frozen=True)
class StripPart:
    """One phase of a strip. `at_us`: since the strip's begin; `x` and `width`: in percent of it. `is_open`: its end is
    not in the files."""

    name: str
    at_us: int
    us: int
    x: float
    width: float
    source: str
    is_open: bool


def phase_strip(phases: Sequence[PhaseSpan], shown_end_us: int | None = None, scale_us: int = 0) -> list[StripPart]:
    """Return the phases that have a length. An open one lasts to `shown_end_us`, where the files' boot ends; without
    that it is left out. The strip is as long as they are, or `scale_us`."""
    spans = [
        (phase, phase.start_us, end)
        for phase in phases
        if phase.start_us is not None
        and (end := shown_end_us if phase.end_us is None else phase.end_us) is not None
        and end > phase.start_us
    ]
    first = min((start for _, start, _ in spans), default=0)
    scale = scale_us or max((end for _, _, end in spans), default=0) - first
    return [
        StripPart(
            name=phase.name,
            at_us=start - first,
            us=end - start,
            x=100 * (start - first) / scale,
            width=100 * (end - start) / scale,
            source=phase.source,
            is_open=phase.end_us is None,
        )
        for phase, start, end in spans
    ]
