# SPDX-License-Identifier: Apache-2.0
"""Find where time went without a row of its own: silences of the log, named where a message explains them."""

from __future__ import annotations

import bisect
import functools
import heapq
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import pairwise
from typing import Any

import msgspec

from vmtailor.analysis.bootlog.boot_record import Gap, Observed
from vmtailor.analysis.bootlog.log_lines import decode
from vmtailor.analysis.bootlog.stamps import strip_stamp
from vmtailor.base.bounded_patterns import bounded
from vmtailor.base.errors import VmtailorError
from vmtailor.base.notation import version_key
from vmtailor.model.boots.timeline import GapSpan, Initcall, Path, PhaseName, PhaseSpan, Probe, UnitSpan

#: Shorter silences are not worth a row; between stamps of whole seconds, each of which may be off by a second.
MIN_GAP_US, ROUGH_GAP_US = 1000, 5_000_000
#: Gaps kept at most, the longest.
MAX_GAPS = 200


class Silences:
    """The longest stretches without a message."""

    def __init__(self) -> None:
        self._kept: list[tuple[int, int, int, str, str]] = []

    def note(self, times: tuple[int, int], lines: tuple[bytes, bytes], *, rough: bool) -> None:
        """Keep the time between two lines, where it is a silence. `rough`: a stamp of theirs has whole seconds."""
        if times[1] - times[0] >= (ROUGH_GAP_US if rough else MIN_GAP_US):
            self.add(*times, *lines)

    def add(self, start_us: int, end_us: int, before: bytes, after: bytes) -> None:
        """Keep one, if it is among the longest; `before` and `after` are the lines around it."""
        length = end_us - start_us
        if len(self._kept) >= MAX_GAPS and length <= self._kept[0][0]:
            return
        entry = (length, start_us, end_us, _message(before), _message(after))
        if len(self._kept) < MAX_GAPS:
            heapq.heappush(self._kept, entry)
        else:
            heapq.heapreplace(self._kept, entry)

    def add_all(self, lines: Sequence[tuple[int, bytes]], shift_us: int) -> None:
        """Keep those between lines that were not looked at one by one."""
        for (start_us, before), (end_us, after) in pairwise(lines):
            self.note((start_us + shift_us, end_us + shift_us), (before, after), rough=False)

    def moved(self, shift_us: int) -> Silences:
        """Return them on another clock."""
        other = Silences()
        other._kept = [
            (size, start + shift_us, end + shift_us, before, after) for size, start, end, before, after in self._kept
        ]
        return other

    def longest(self) -> list[Gap]:
        """Return all that were kept, the longest first."""
        return [Gap(*entry[1:]) for entry in sorted(self._kept, reverse=True)]


def _message(line: bytes) -> str:
    return decode(strip_stamp(line), 120)


@dataclass(frozen=True)
class GapKind:
    """A kind of silence, told by the message before it, the one after it, or (`both`) by both. `blocks`: the boot waits
    for it in user space, too. `users`: one of user space alone, which belongs to the boot up to `most_us`, whether that
    waits for it or not."""

    id: str
    title: str
    before: re.Pattern[str] | None
    after: re.Pattern[str] | None
    both: bool = False
    blocks: bool = False
    users: bool = False
    most_us: int = 0

    def fits(self, before: str, after: str) -> bool:
        """Return whether the messages around a silence tell this kind."""
        first = self.before is not None and self.before.search(before) is not None
        if self.both or not first:
            second = self.after is not None and self.after.search(after) is not None
            return first and second if self.both else second
        return first


@dataclass(frozen=True)
class StretchKind:
    """A stretch from one message to the next that ends it, whatever is said between. `blocks_until`: kernels before
    that version do nothing else meanwhile."""

    id: str
    title: str
    begins: re.Pattern[str]
    ends: re.Pattern[str]
    blocks: bool = False
    blocks_until: str = ""

    def holds(self, version: str | None) -> bool:
        """Return whether the boot of a kernel waits for it. An unknown kernel may be any."""
        known = version_key(version) if version and self.blocks_until else ()
        return self.blocks or bool(known and known < version_key(self.blocks_until))


@functools.cache
def _tables() -> tuple[tuple[GapKind, ...], tuple[StretchKind, ...]]:
    try:
        raw = tomllib.loads((resources.files("vmtailor") / "data" / "boot_gaps.toml").read_text("utf-8"))
        gaps = tuple(
            GapKind(
                id=g["id"],
                title=g["title"],
                before=_pattern(g, "before"),
                after=_pattern(g, "after"),
                both=g.get("both", False),
                blocks=g.get("blocks", False),
                users=g.get("users", False),
                most_us=1_000_000 * int(g.get("most_s", 0)),
            )
            for g in raw["gap"]
        )
        stretches = tuple(
            StretchKind(
                id=s["id"],
                title=s["title"],
                begins=re.compile(bounded(s["from"])),
                ends=re.compile(bounded(s["to"])),
                blocks=s.get("blocks", False),
                blocks_until=s.get("blocks_until", ""),
            )
            for s in raw["stretch"]
        )
    except (KeyError, ValueError, TypeError, re.error) as error:
        raise VmtailorError(f"the table of gaps is wrong: {error}") from error
    return gaps, stretches


def _pattern(raw: dict[str, Any], name: str) -> re.Pattern[str] | None:
    return re.compile(bounded(raw[name])) if name in raw else None


def gap_kinds() -> tuple[GapKind, ...]:
    """Return all kinds of silences, in the file's order."""
    return _tables()[0]


def told_by_what_follows(gap: GapSpan) -> bool:
    """Return whether a silence of user space is told by the message that ends it, so that the one before has no part in
    it."""
    return gap.silent and any(kind.users and kind.id == gap.kind for kind in gap_kinds())


def stretch_kinds() -> tuple[StretchKind, ...]:
    """Return all kinds of stretches, in the file's order."""
    return _tables()[1]


def ids() -> frozenset[str]:
    """Return the ids of all kinds: those that a change may name."""
    return frozenset([kind.id for kind in gap_kinds()] + [kind.id for kind in stretch_kinds()])


#: Initcalls and probes that are shorter explain no silence.
LEAST_RUN_US = 100

Rows = Sequence[Initcall] | Sequence[Probe]


def without_inner(gaps: Sequence[GapSpan]) -> list[GapSpan]:
    """Return the gaps that count. A silence within a named stretch is part of it, and its own kind is the truer one: a
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
    """Return the gaps with `own_us`: without time `covered` by initcalls and probes. Stretches also lose the named
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
    """Return how much of a span lies in silences that a message explains."""
    inner = merged(
        (max(g.start_us, start_us), min(g.end_us, end_us))
        for g in gaps
        if g.silent and g.kind and g.kind != "generators" and g.start_us < end_us and g.end_us > start_us
    )
    return sum(end - start for start, end in inner)


def covered_by(groups: Sequence[Rows]) -> list[tuple[int, int]]:
    """Return the spans in which initcalls and probes of some length ran. One with both its lines holds a silence whole,
    or not at all, so it is no shorter than one. A long log has a million such rows."""
    return merged(
        (row.start_us, row.end_us)
        for rows in groups
        for row in rows
        if row.start_us is not None
        and row.end_us is not None
        and row.end_us - row.start_us >= (MIN_GAP_US if isinstance(row, Initcall) and row.stamps_us else LEAST_RUN_US)
    )


def merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the spans in order, joined where they overlap."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        elif end > start:
            joined.append((start, end))
    return joined


def shared(spans: Sequence[tuple[int, int]], start: int, end: int) -> int:
    """Return how much of a span lies in these, which are in order and apart from each other."""
    total = 0
    for left, right in spans[max(0, bisect.bisect_right(spans, (start, start)) - 1) :]:
        if left >= end:
            break
        total += max(0, min(end, right) - max(start, left))
    return total


#: In an open phase a silence that nothing explains ends the boot, when it is so long, and such a share of all before.
#: A known wait belongs to the boot, however long it is.
TAIL_US = 10_000_000
TAIL_SHARE = 0.1
#: A silence in which units were starting for such a share of it is theirs.
OF_UNITS = 0.5
#: Messages are looked at for stretches up to here, and a stretch is taken so often.
MOST_STRETCHES = 20
#: Without finer stamps a silence says nothing.
COARSE_US = 1_000_000


def shown_end(observed: Observed, phases: Sequence[PhaseSpan]) -> int | None:
    """Return the end of the boot as far as the files show: the end of the last phase. Where that is open, it is the
    last event before a silence that belongs to no boot. The result is None where nothing has a time."""
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
        if gap.start_us >= begin and length >= max(TAIL_US, TAIL_SHARE * before) and not _of_boot(gap, phases):
            return max([gap.start_us, begin, *ends])
    return max([last, begin, *ends])


def gaps_of(
    observed: Observed, phases: Sequence[PhaseSpan], rows: Sequence[Rows], units: Sequence[UnitSpan], end_us: int | None
) -> list[GapSpan]:
    """Return the silences and stretches of the boot, by their start. Those that an initcall, a probe or units account
    for are left out, unless a message explains them."""
    covered = covered_by(rows)
    busy = merged((u.start_us, u.start_us + u.duration_us) for u in units if u.start_us is not None and u.duration_us)
    found = list(_stretches(observed, phases, end_us))
    for gap in (_within(gap, end_us) for gap in observed.gaps):
        length = gap.end_us - gap.start_us
        if length < MIN_GAP_US:
            continue
        if observed.coarse and length <= COARSE_US:
            continue
        phase = _phase(phases, gap.start_us)
        kind = _kind(gap, phase)
        if kind is None and length - shared(covered, gap.start_us, gap.end_us) < MIN_GAP_US:
            continue
        user = phase in (PhaseName.USERSPACE, "")
        if kind is None and user and shared(busy, gap.start_us, gap.end_us) >= OF_UNITS * length:
            continue
        found.append(_span(gap.start_us, gap.end_us, (gap.text, gap.after), phase, kind))
    return with_own_time(sorted(found, key=lambda gap: (gap.start_us, gap.start_us - gap.end_us)), covered)


def _within(gap: Gap, end_us: int | None) -> Gap:
    """Return the part of a silence that belongs to the boot. Once the machine is up it waits for nobody, and the
    message that ends the silence tells nothing of the boot."""
    if end_us is None or gap.end_us <= end_us:
        return gap
    return msgspec.structs.replace(gap, end_us=end_us, after="")


def _of_boot(gap: Gap, phases: Sequence[PhaseSpan]) -> bool:
    kind = _kind(gap, _phase(phases, gap.start_us))
    return kind is not None and (kind.blocks or gap.end_us - gap.start_us <= kind.most_us)


def _kind(gap: Gap, phase: str) -> GapKind | None:
    user = phase == PhaseName.USERSPACE
    return next((kind for kind in gap_kinds() if kind.fits(gap.text, gap.after) and (user or not kind.users)), None)


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
                if at_us - opened[0] >= MIN_GAP_US:
                    span = _span(opened[0], at_us, (opened[1][:120], text[:120]), _phase(phases, opened[0]), kind)
                    yield span if kind.holds(observed.version) else msgspec.structs.replace(span, path=Path.UNKNOWN)
