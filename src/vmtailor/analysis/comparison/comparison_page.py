# SPDX-License-Identifier: Apache-2.0
"""A comparison as one self-contained HTML page."""

from __future__ import annotations

from vmtailor.analysis.timeline.phases import phase_strip
from vmtailor.base import pages
from vmtailor.model.boots.comparison import Comparison


def compare_page(comparison: Comparison) -> str:
    """Return the page."""
    both = (comparison.before, comparison.after)
    longest = max((part.at_us + part.us for side in both for part in phase_strip(side.phases)), default=0)
    sides = [{"side": side, "phases": phase_strip(side.phases, scale_us=longest)} for side in both]
    data = {
        "rows": [
            [
                r.kind,
                r.name,
                r.occurrence,
                r.before,
                r.after,
                r.change,
                r.low,
                r.high,
                r.p,
                r.verdict,
                r.direction,
                r.moved,
                r.unit,
                r.boots,
                r.of,
            ]
            for r in comparison.items
        ],
        "sides": [comparison.before.name, comparison.after.name],
    }
    return pages.render(
        "compare.html",
        data=data,
        styles=["boot.css"],
        scripts=["compare.js"],
        values={"comparison": comparison, "sides": sides},
    )
