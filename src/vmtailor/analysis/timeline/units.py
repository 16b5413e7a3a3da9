# SPDX-License-Identifier: Apache-2.0
"""Units start side by side: a unit's own time is that in which no other was starting."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from vmtailor.model.boots.timeline import Unit


def own_time(units: Sequence[Unit]) -> list[Unit]:
    """The units in order of their start, with `exclusive_us` for those whose start and duration are known."""
    timed = [
        (n, u.start_us, u.start_us + u.duration_us)
        for n, u in enumerate(units)
        if u.start_us is not None and u.duration_us and u.exclusive_us is None
    ]
    events = sorted([(start, 1, n) for n, start, _ in timed] + [(end, 0, n) for n, _, end in timed])
    alone: dict[int, int] = {n: 0 for n, _, _ in timed}
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
