# SPDX-License-Identifier: Apache-2.0
"""Units start side by side: a unit's own time is that in which no other was starting, and the boot waits for those on
the critical path only."""

from __future__ import annotations

import bisect
from collections.abc import Sequence

import msgspec

from vmtailor.model.boots.timeline import STAGES, Unit

#: One unit begins when another is up: their stamps may cross by so much.
TOLERANCE_US = 1000
#: What a system is started for, the last first.
GOALS = ("graphical.target", "Graphical Interface", "multi-user.target", "Multi-User System", "default.target")
#: Not started by the service manager as its units are: stages within a unit, and what comes before all units.
INSIDE = (STAGES, "generators")


def own_time(units: Sequence[Unit]) -> list[Unit]:
    """The units in order of their start, with `exclusive_us` for those whose start and duration are known. What ran
    within a unit takes nothing from it."""
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


def _of_stages(units: Sequence[Unit]) -> dict[int, int]:
    """The own time of each stage, by its place: what the events within it, which are named after it, did not take."""
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


def critical_path(units: Sequence[Unit], end_us: int | None) -> list[Unit]:
    """The units with `critical` and `path_us`.

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


def _goal(units: Sequence[Unit], end_us: int | None) -> int:
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


def _longest_chain(units: Sequence[Unit], goal_us: int) -> set[int]:
    """The places of the units, none beginning before another ends, that together last longest up to `goal_us`."""
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


def _waited_for(units: Sequence[Unit]) -> list[Unit]:
    """The units with `path_us`: of what is on the path, the time since the one before it was up."""
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
