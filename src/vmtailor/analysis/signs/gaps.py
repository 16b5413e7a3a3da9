# SPDX-License-Identifier: Apache-2.0
"""Where time went without a row of its own: silences of the log in all phases, named where a message explains them; and
how much of a boot the files show, whatever was logged hours later."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from vmtailor.analysis.bootlog.observed import Gap, Observed
from vmtailor.analysis.signs.gap_kinds import GapKind, StretchKind, gap_kinds, stretch_kinds
from vmtailor.analysis.signs.gap_sums import MIN_US, Rows, covered_by, merged, shared, with_own_time
from vmtailor.model.boots.timeline import GapSpan, Path, PhaseName, PhaseSpan, Unit

#: In an open phase a silence that nothing explains ends the boot, when it is so long, and such a share of all before.
#: What is known to be waited for belongs to the boot, however long it is.
TAIL_US = 10_000_000
TAIL_SHARE = 0.1
#: A silence in which units were starting for such a share of it is theirs.
OF_UNITS = 0.5
#: Messages are looked at for stretches up to here, and a stretch is taken so often.
MOST_STRETCHES = 20
#: Without finer stamps a silence says nothing.
COARSE_US = 1_000_000


def shown_end(observed: Observed, phases: Sequence[PhaseSpan]) -> int | None:
    """Where the boot ends as far as the files show: the end of the last phase; where that is open, the last event
    before a silence that belongs to no boot. None where nothing has a time."""
    ends = [p.end_us for p in phases if p.end_us is not None]
    starts = [p.start_us for p in phases if p.start_us is not None]
    opened = [p for p in phases if p.end_us is None and p.start_us is not None]
    ready = next((p.end_us for p in phases if p.name == PhaseName.READY), None)
    if not opened or ready is not None:
        return max(ends, default=None)
    begin = max(p.start_us for p in opened if p.start_us is not None)
    last = max((t for t in (observed.last_us, *(u.end_us for u in observed.units)) if t is not None), default=begin)
    for gap in sorted(observed.gaps, key=lambda gap: gap.start_us):
        length = gap.end_us - gap.start_us
        before = gap.start_us - min(starts)
        if gap.start_us >= begin and length >= max(TAIL_US, TAIL_SHARE * before) and not _waited_for(gap):
            return max([gap.start_us, begin, *ends])
    return max([last, begin, *ends])


def gaps_of(
    observed: Observed, phases: Sequence[PhaseSpan], rows: Sequence[Rows], units: Sequence[Unit], end_us: int | None
) -> list[GapSpan]:
    """The silences and stretches of the boot, by their start. Those that an initcall, a probe or units account for are
    left out, unless a message explains them."""
    covered = covered_by(rows)
    busy = merged((u.start_us, u.start_us + u.duration_us) for u in units if u.start_us is not None and u.duration_us)
    found = list(_stretches(observed, phases, end_us))
    for gap in (_within(gap, end_us) for gap in observed.gaps):
        length = gap.end_us - gap.start_us
        if length < MIN_US:
            continue
        if observed.coarse and length <= COARSE_US:
            continue
        kind, phase = _kind(gap), _phase(phases, gap.start_us)
        if kind is None and length - shared(covered, gap.start_us, gap.end_us) < MIN_US:
            continue
        user = phase in (PhaseName.USERSPACE, "")
        if kind is None and user and shared(busy, gap.start_us, gap.end_us) >= OF_UNITS * length:
            continue
        found.append(_span(gap.start_us, gap.end_us, (gap.text, gap.after), phase, kind))
    return with_own_time(sorted(found, key=lambda gap: (gap.start_us, gap.start_us - gap.end_us)), covered)


def _within(gap: Gap, end_us: int | None) -> Gap:
    """As much of a silence as is the boot's: once the machine is up, it waits for nobody, and the message that ends it
    tells nothing of the boot."""
    if end_us is None or gap.end_us <= end_us:
        return gap
    return msgspec.structs.replace(gap, end_us=end_us, after="")


def _waited_for(gap: Gap) -> bool:
    kind = _kind(gap)
    return kind is not None and kind.blocks


def _kind(gap: Gap) -> GapKind | None:
    return next((kind for kind in gap_kinds() if kind.fits(gap.text, gap.after)), None)


def _phase(phases: Sequence[PhaseSpan], at_us: int) -> str:
    for phase in phases:
        if phase.name == PhaseName.READY or phase.start_us is None:
            continue
        if phase.start_us <= at_us and (phase.end_us is None or at_us < phase.end_us):
            return str(phase.name)
    return ""


def _span(
    start_us: int, end_us: int, around: tuple[str, str], phase: str, kind: GapKind | StretchKind | None
) -> GapSpan:
    path = Path.UNKNOWN
    if (phase and phase != PhaseName.USERSPACE) or (kind is not None and kind.blocks):
        path = Path.CRITICAL
    known = (kind.id, kind.title) if kind else ("", "")
    return GapSpan(start_us, end_us, *around, phase, *known, path.value, not isinstance(kind, StretchKind))


def _stretches(observed: Observed, phases: Sequence[PhaseSpan], end_us: int | None) -> Iterable[GapSpan]:
    if observed.coarse:
        return
    begun: dict[str, tuple[int, str]] = {}
    counts: dict[str, int] = {}
    for at_us, text in observed.messages:
        if at_us is None or (end_us is not None and at_us > end_us):
            continue
        for kind in stretch_kinds():
            opened = begun.get(kind.id)
            if opened is None:
                if counts.get(kind.id, 0) < MOST_STRETCHES and kind.begins.search(text):
                    begun[kind.id] = (at_us, text)
            elif kind.ends.search(text):
                del begun[kind.id]
                counts[kind.id] = counts.get(kind.id, 0) + 1
                if at_us - opened[0] >= MIN_US:
                    span = _span(opened[0], at_us, (opened[1][:120], text[:120]), _phase(phases, opened[0]), kind)
                    # What the kernel unpacks from 5.13 on runs beside it; before, nothing else does.
                    yield msgspec.structs.replace(span, path=Path.UNKNOWN.value) if not kind.blocks else span
