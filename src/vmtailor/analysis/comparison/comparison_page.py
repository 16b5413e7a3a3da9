# SPDX-License-Identifier: Apache-2.0
"""A comparison as one self-contained HTML page."""

from __future__ import annotations

from typing import Any

from vmtailor.base import pages
from vmtailor.model.boots.comparison import ComparedSide, Comparison


def compare_page(comparison: Comparison) -> str:
    """The page."""
    longest = max((_length(side) for side in (comparison.before, comparison.after)), default=0)
    sides = [{"side": side, "phases": _strip(side, longest)} for side in (comparison.before, comparison.after)]
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


def _known(side: ComparedSide) -> list[tuple[str, int, int]]:
    return [
        (str(p.name), p.start_us, p.end_us)
        for p in side.phases
        if p.start_us is not None and p.end_us is not None and p.end_us > p.start_us
    ]


def _length(side: ComparedSide) -> int:
    known = _known(side)
    return max(end for _, _, end in known) - min(start for _, start, _ in known) if known else 0


def _strip(side: ComparedSide, longest: int) -> list[dict[str, Any]]:
    known = _known(side)
    if not known or not longest:
        return []
    first = min(start for _, start, _ in known)
    return [
        {"name": name, "us": end - start, "x": 100 * (start - first) / longest, "width": 100 * (end - start) / longest}
        for name, start, end in known
    ]
