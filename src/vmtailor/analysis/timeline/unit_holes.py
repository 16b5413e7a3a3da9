# SPDX-License-Identifier: Apache-2.0
"""Find the stretches of user space in which no unit was starting, though the boot was not over."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from vmtailor.analysis.bootlog.boot_record import Observed
from vmtailor.model.boots.timeline import STAGES, DurationSource, GapSpan, Path, PhaseName, PhaseSpan, UnitSpan

#: Shorter ones say nothing, nor do those that are a small share of user space.
LEAST_US, LEAST_SHARE = 1_000_000, 0.02
#: Fewer units are not all there are.
LEAST_UNITS = 8
ID = "no-unit-starting"


def holes_of(observed: Observed, phases: Sequence[PhaseSpan], units: Sequence[UnitSpan]) -> list[GapSpan]:
    """Return the holes between units, where a chart has all of them: each ends with the unit that starts next. Scopes
    are not started by the service manager, and say nothing."""
    user = next((p for p in phases if p.name == PhaseName.USERSPACE), None)
    if user is None or user.start_us is None or user.end_us is None or observed.kernel_log:
        return []
    told = (DurationSource.REPORTED, DurationSource.DRAWING)
    told_units = (u for u in units if u.duration_source in told and not u.name.startswith(STAGES))
    timed = sorted(
        (u.start_us, u.start_us + (u.duration_us or 0), u.name)
        for u in told_units
        if u.start_us is not None and not u.name.endswith(".scope")
    )
    if len(timed) < LEAST_UNITS:
        return []
    least = max(LEAST_US, round(LEAST_SHARE * (user.end_us - user.start_us)))
    holes = []
    busy = [(user.start_us, user.start_us, "the start of user space"), *timed]
    reached, last = busy[0][1], busy[0][2]
    for (_, end, name), (start, _, following) in pairwise(busy):
        if end >= reached:
            reached, last = end, name
        if start - reached >= least and start <= user.end_us:
            title = f"no unit was starting, then {following}"
            holes.append(
                GapSpan(
                    start_us=reached,
                    end_us=start,
                    before=last,
                    after=following,
                    phase=PhaseName.USERSPACE.value,
                    kind=ID,
                    title=title,
                    path=Path.CRITICAL.value,
                    silent=True,
                    own_us=start - reached,
                )
            )
    return holes
