# SPDX-License-Identifier: Apache-2.0
"""Find what each item took itself, what ran beside the boot, and what the boot waited for."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from operator import attrgetter

import msgspec

from vmtailor.model.boots.timeline import STAGES, UnitSpan

#: A probe's start is computed from rounded figures: it may stick out of the call around it by this much.
SLACK_US = 30
MAIN = 1


class Span(msgspec.Struct, gc=False):
    """One run of something. `task` is its thread (None: the log does not say). `inside_us` collects the time of what
    ran in it;
    `inner`: it ran inside an initcall."""

    start_us: int
    end_us: int
    duration_us: int
    task: int | None
    probe: bool
    inside_us: int = 0
    beside: bool = False
    overlaps: bool = False
    inner: bool = False

    @property
    def exclusive_us(self) -> int:
        return max(0, self.duration_us - self.inside_us)


def nest(spans: Sequence[Span | None]) -> None:
    """Fill in `inside_us`, `beside` and `overlaps`. None stands for a run without known times, and is left alone."""
    known = [span for span in spans if span is not None]
    if not any(span.probe for span in known) and _flat(known):
        for span in known:
            span.beside = span.task not in (None, 0, MAIN)
        return
    # Two stable sorts, by start and then the longest first, make no tuple for each of a million runs.
    order = sorted(known, key=attrgetter("end_us"), reverse=True)
    order.sort(key=attrgetter("start_us"))
    del known
    stacks: dict[int, list[Span]] = {}
    for span in order:
        task = MAIN if span.task in (None, 0) else int(span.task or MAIN)
        stack = _still_open(stacks.setdefault(task, []), span)
        if span.probe and span.task is None and not stack:
            stack = _that_holds(span, stacks) or stack
        parent = stack[-1] if stack else None
        span.beside = task != MAIN or (parent is not None and parent.beside)
        while parent is not None and span.end_us > parent.end_us and parent.end_us - span.start_us <= SLACK_US:
            stack.pop()
            parent = stack[-1] if stack else None
        if parent is not None and span.end_us > parent.end_us + SLACK_US:
            span.overlaps = True
            if span.probe:
                # One thread does not do two things at once: this one ran in another.
                span.beside = True
                continue
        elif parent is not None:
            parent.inside_us += span.duration_us
            span.beside = span.beside or parent.beside
            span.inner = parent.inner or not parent.probe
        stack.append(span)


def _still_open(stack: list[Span], span: Span) -> list[Span]:
    """The stack without what was over when the span began."""
    while stack and stack[-1].end_us <= span.start_us:
        stack.pop()
    return stack


def _that_holds(span: Span, stacks: Mapping[int, list[Span]]) -> list[Span] | None:
    """Return the stack of another thread whose innermost call holds a probe whole; of several, the latest begun."""
    held = [
        stack
        for task, stack in stacks.items()
        if task != MAIN and _still_open(stack, span) and stack[-1].end_us + SLACK_US >= span.end_us
    ]
    return max(held, key=lambda stack: stack[-1].start_us, default=None)


def _flat(spans: Sequence[Span]) -> bool:
    last = -(1 << 62)
    for span in spans:
        if span.start_us < last:
            return False
        last = span.end_us
    return True


#: One unit begins when another is up: their stamps may cross by this much.
TOLERANCE_US = 1000
#: Targets for which a system is started, the last one first.
GOALS = ("graphical.target", "Graphical Interface", "multi-user.target", "Multi-User System", "default.target")
#: Not started by the service manager as its units are: stages within a unit, and what comes before all units.
INSIDE = (STAGES, "generators")


def own_time(units: Sequence[UnitSpan]) -> list[UnitSpan]:
    """Return the units in order of their start, with `exclusive_us` for those whose start and duration are known. What
    ran within a unit takes nothing from it."""
    timed = [
        (n, u.start_us, u.start_us + u.duration_us)
        for n, u in enumerate(units)
        if u.start_us is not None and u.duration_us and u.exclusive_us is None and not u.name.startswith(STAGES)
    ]
    events = sorted([(start, 1, n) for n, start, _ in timed] + [(end, 0, n) for n, _, end in timed])
    alone: dict[int, int] = {n: 0 for n, _, _ in timed} | _of_stages(units)
    running: set[int] = set()
    last = 0
    for at, opens, n in events:
        if len(running) == 1:
            alone[next(iter(running))] += at - last
        last = at
        if opens:
            running.add(n)
        else:
            running.discard(n)
    rows = []
    for n, unit in enumerate(units):
        own = alone.get(n)
        if own is None and unit.duration_us == 0:
            own = 0
        rows.append(
            msgspec.structs.replace(unit, exclusive_us=own) if own is not None and unit.exclusive_us is None else unit
        )
    return sorted(rows, key=lambda u: (u.start_us is None, u.start_us or 0, -(u.duration_us or 0)))


def _of_stages(units: Sequence[UnitSpan]) -> dict[int, int]:
    """Return the own time of each stage, by its place: what the events within it, which are named after it, did not
    take."""
    within: dict[str, int] = {}
    for unit in units:
        if unit.name.startswith(STAGES) and "/" in unit.name:
            around = unit.name.rpartition("/")[0]
            within[around] = within.get(around, 0) + (unit.duration_us or 0)
    return {
        n: max(0, unit.duration_us - within.get(unit.name, 0))
        for n, unit in enumerate(units)
        if unit.name.startswith(STAGES) and unit.duration_us is not None
    }


def critical_path(units: Sequence[UnitSpan], end_us: int | None) -> list[UnitSpan]:
    """Return the units with `critical` and `path_us`.

    A chain that `systemd-analyze critical-chain` printed is taken as it is: it knows the orderings. Elsewhere the path
    is the chain of units, each begun when the one before was up, that fills most of the time before the goal: the
    target that was reached last up to `end_us`, or else the last unit that was up by then."""
    if not any(unit.critical for unit in units):
        chain = _longest_chain(units, _goal(units, end_us))
        if not chain:
            return list(units)
        units = [
            unit if unit.name.startswith(INSIDE) or unit.start_us is None or unit.duration_us is None
            else msgspec.structs.replace(unit, critical=n in chain)
            for n, unit in enumerate(units)
        ]  # fmt: skip
    return _waited_for(units)


def _goal(units: Sequence[UnitSpan], end_us: int | None) -> int:
    """When what the path leads to was up."""
    reached = {
        u.name: u.end_us if u.end_us is not None else u.start_us for u in units if u.name in GOALS and u.start_us
    }
    for name in GOALS:
        at = reached.get(name)
        if at is not None and (end_us is None or at <= end_us):
            return at
    ends = [u.start_us + u.duration_us for u in units if u.start_us is not None and u.duration_us]
    return max((end for end in ends if end_us is None or end <= end_us + TOLERANCE_US), default=0)


def _longest_chain(units: Sequence[UnitSpan], goal_us: int) -> set[int]:
    """Return the places of the units, none beginning before another ends, that together last longest up to
    `goal_us`."""
    timed = sorted(
        (max(u.start_us, u.start_us + u.duration_us - TOLERANCE_US), u.start_us, u.duration_us, n)
        for n, u in enumerate(units)
        if u.start_us is not None and u.duration_us and not u.name.startswith(INSIDE)
        and u.start_us + u.duration_us <= goal_us + TOLERANCE_US
    )  # fmt: skip
    ends = [end for end, *_ in timed]
    best: list[tuple[int, int, bool]] = []  # time filled by the first so many; the one before; whether it is taken
    for at, (_, start, took, _) in enumerate(timed):
        before = bisect.bisect_right(ends, start, 0, at)
        filled = (best[before - 1][0] if before else 0) + took
        skipped = best[at - 1][0] if at else 0
        best.append((filled, before - 1, True) if filled > skipped else (skipped, at - 1, False))
    chain: set[int] = set()
    at = len(best) - 1
    while at >= 0:
        _, before, taken = best[at]
        if taken:
            chain.add(timed[at][3])
        at = before
    return chain


def _waited_for(units: Sequence[UnitSpan]) -> list[UnitSpan]:
    """Return the units with `path_us`: of what is on the path, the time since the one before it was up."""
    rows = list(units)
    path = sorted(
        (u.start_us, u.start_us + (u.duration_us or 0), n)
        for n, u in enumerate(units) if u.critical and u.start_us is not None
    )  # fmt: skip
    reached: int | None = None
    for start, end, n in path:
        begun = start if reached is None else max(start, reached)
        rows[n] = msgspec.structs.replace(rows[n], path_us=max(0, end - begun))
        reached = end if reached is None else max(end, reached)
    return rows
