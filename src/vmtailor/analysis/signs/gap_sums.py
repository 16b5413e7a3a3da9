# SPDX-License-Identifier: Apache-2.0
"""What gaps add up to: each moment counts once."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence

import msgspec

from vmtailor.model.boots.timeline import GapSpan, Initcall, Probe

#: Shorter silences are not worth a row.
MIN_US = 1000
#: Initcalls and probes that are shorter explain no silence.
LEAST_RUN_US = 100

Rows = Sequence[Initcall] | Sequence[Probe]


def without_inner(gaps: Sequence[GapSpan]) -> list[GapSpan]:
    """The gaps that count: a silence within a named stretch is part of it, and its own kind is the truer one, so a
    stretch keeps what its named silences of other kinds leave."""
    stretches = [gap for gap in gaps if not gap.silent]
    kept: list[GapSpan] = []
    for gap in gaps:
        if not gap.silent:
            continue
        around = [s for s in stretches if s.start_us <= gap.start_us and gap.end_us <= s.end_us]
        if not around or (gap.kind and all(gap.kind != s.kind for s in around)):
            kept.append(gap)
    return sorted([*kept, *stretches], key=lambda gap: gap.start_us)


def with_own_time(gaps: Sequence[GapSpan], covered: Sequence[tuple[int, int]]) -> list[GapSpan]:
    """The gaps with `own_us`: without what is `covered` by initcalls and probes, and, of stretches, without the named
    silences of other kinds in them."""
    rows = []
    for gap in gaps:
        inner: list[tuple[int, int]] = []
        if not gap.silent:
            inner = [
                (g.start_us, g.end_us) for g in gaps
                if g.silent and g.kind and g.kind != gap.kind and gap.start_us <= g.start_us and g.end_us <= gap.end_us
            ]  # fmt: skip
        taken = shared(merged([*covered, *inner]) if inner else covered, gap.start_us, gap.end_us)
        rows.append(msgspec.structs.replace(gap, own_us=max(0, gap.end_us - gap.start_us - taken)))
    return rows


def named_within(gaps: Sequence[GapSpan], start_us: int, end_us: int) -> int:
    """How much of a span lies in silences that a message explains."""
    inner = merged(
        (max(g.start_us, start_us), min(g.end_us, end_us))
        for g in gaps
        if g.silent and g.kind and g.kind != "generators" and g.start_us < end_us and g.end_us > start_us
    )
    return sum(end - start for start, end in inner)


def covered_by(groups: Sequence[Rows]) -> list[tuple[int, int]]:
    """Where initcalls and probes of some length ran. What has both its lines holds a silence whole, or not at all, so
    it is no shorter than one; a long log has a million such rows."""
    return merged(
        (row.start_us, row.end_us)
        for rows in groups
        for row in rows
        if row.start_us is not None
        and row.end_us is not None
        and row.end_us - row.start_us >= (MIN_US if isinstance(row, Initcall) and row.stamps_us else LEAST_RUN_US)
    )


def merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The spans in order, joined where they overlap."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        elif end > start:
            joined.append((start, end))
    return joined


def shared(spans: Sequence[tuple[int, int]], start: int, end: int) -> int:
    """How much of a span lies in these, which are in order and apart from each other."""
    total = 0
    for left, right in spans[max(0, bisect.bisect_right(spans, (start, start)) - 1) :]:
        if left >= end:
            break
        total += max(0, min(end, right) - max(start, left))
    return total
