# SPDX-License-Identifier: Apache-2.0
"""Compare the figures of a boot with each other before any is shown. A contradiction becomes a warning that names both,
and the weaker figure is not shown."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from vmtailor.analysis.bootlog.boot_record import Observed
from vmtailor.analysis.bootlog.silences import merged
from vmtailor.model.boots.timeline import (
    GapSpan,
    Hotspot,
    Path,
    PhaseName,
    PhaseSpan,
    Timeline,
    UnitSpan,
    Warn,
    WarningCode,
)

#: A system is ready a little before or after systemd has finished: beyond both of these it is another event.
NEAR_US, NEAR_SHARE = 30_000_000, 0.5
#: Figures of one moment differ by no more: prints are late, figures are rounded.
SLACK_US = 100_000


def _seconds(us: int) -> str:
    return f"{us / 1e6:.3f} s"


def checked_phases(observed: Observed, phases: Sequence[PhaseSpan]) -> list[PhaseSpan]:
    """Return the phases that agree with each other: none ends before it begins, and `ready` lies near the end of user
    space, where systemd reported that. Adds warnings."""
    kept: list[PhaseSpan] = []
    for given in phases:
        phase = given
        if phase.start_us is not None and phase.end_us is not None and phase.end_us < phase.start_us:
            observed.warn(
                WarningCode.CONTRADICTION,
                f"{phase.name} would end at {_seconds(phase.end_us)}, before it begins at {_seconds(phase.start_us)}: "
                "its end is not shown",
            )
            phase = msgspec.structs.replace(phase, end_us=None)
        kept.append(phase)
    ready = next((p for p in kept if p.name == PhaseName.READY and p.end_us is not None), None)
    user = next((p for p in kept if p.name == PhaseName.USERSPACE and p.start_us is not None), None)
    if ready is None or user is None or ready.end_us is None or user.start_us is None:
        return kept
    if ready.end_us < user.start_us - SLACK_US:
        return _without(observed, kept, ready, f"user space begins at {_seconds(user.start_us)}")
    if user in observed.phases and user.source.startswith("systemd") and user.end_us is not None:
        slack = max(NEAR_US, round(NEAR_SHARE * (user.end_us - user.start_us)))
        if ready.end_us > user.end_us + slack:
            return _without(observed, kept, ready, f"systemd had started all by {_seconds(user.end_us)}")
    return kept


def _without(observed: Observed, phases: list[PhaseSpan], ready: PhaseSpan, against: str) -> list[PhaseSpan]:
    observed.warn(
        WarningCode.CONTRADICTION,
        f"ready would be at {_seconds(ready.end_us or 0)} ({ready.source}), but {against}: it is not shown",
    )
    return [phase for phase in phases if phase is not ready]


def checked_units(observed: Observed, phases: Sequence[PhaseSpan]) -> None:
    """Take the times of units that would start before the boot. Adds a warning that names the first of them."""
    begun = min((p.start_us for p in phases if p.start_us is not None), default=None)
    if begun is None:
        return
    early = [u for u in observed.units if u.start_us is not None and u.start_us < begun - SLACK_US]
    if not early:
        return
    first = min(early, key=lambda unit: unit.start_us or 0)
    observed.warn(
        WarningCode.CONTRADICTION,
        f"{len(early)} units would start before the boot, which begins at {_seconds(begun)} (the first: {first.name} "
        f"at {_seconds(first.start_us or 0)}): their starts are not shown",
    )
    gone = {id(unit) for unit in early}
    observed.units = [
        msgspec.structs.replace(u, start_us=None, end_us=None) if id(u) in gone else u for u in observed.units
    ]


def checked_gaps(observed: Observed, phases: Sequence[PhaseSpan], gaps: Sequence[GapSpan]) -> list[GapSpan]:
    """Return the gaps; those of a phase whose silences on the boot's path add up to more than the phase are on no path.
    Adds a warning."""
    kept = list(gaps)
    for phase in phases:
        if phase.start_us is None or phase.end_us is None or phase.name == PhaseName.READY:
            continue
        start, end = phase.start_us, phase.end_us
        of_path = [
            (max(g.start_us, start), min(g.end_us, end))
            for g in kept
            if g.silent and g.path == Path.CRITICAL and g.start_us < end and g.end_us > start
        ]
        total = sum(right - left for left, right in of_path)
        if total <= sum(right - left for left, right in merged(of_path)) + SLACK_US:
            continue
        observed.warn(
            WarningCode.CONTRADICTION,
            f"silences of {phase.name} overlap: they add up to {_seconds(total)} in {_seconds(end - start)}, so none "
            "of them counts as what the boot waited for",
        )
        kept = [
            msgspec.structs.replace(g, path=Path.UNKNOWN.value) if g.silent and start <= g.start_us < end else g
            for g in kept
        ]
    return kept


def within_boot(unit: UnitSpan, end_us: int | None) -> bool:
    """Return whether a unit was started before the boot was over, or its start is not known."""
    return end_us is None or unit.start_us is None or unit.start_us < end_us


def checked_spots(timeline: Timeline, spots: Sequence[Hotspot]) -> tuple[list[Hotspot], tuple[Warn, ...]]:
    """Return the hot spots that are no longer than what they are part of, and a warning for each that would be."""
    kept, warnings = [], []
    for spot in spots:
        whole = None
        if spot.share_total is not None and spot.share_total > 1:
            whole = ("the boot", timeline.total_us)
        elif spot.share_kernel is not None and spot.share_kernel > 1:
            whole = ("the kernel", timeline.kernel_us)
        if whole is None or spot.exclusive_us <= (whole[1] or 0) + SLACK_US:
            # What rounding put over it is all of it.
            kernel, total = (None if s is None else min(s, 1.0) for s in (spot.share_kernel, spot.share_total))
            kept.append(msgspec.structs.replace(spot, share_kernel=kernel, share_total=total))
            continue
        warnings.append(
            Warn(
                WarningCode.CONTRADICTION.value,
                f"{spot.name} would take {_seconds(spot.exclusive_us)}, and {whole[0]} {_seconds(whole[1] or 0)}: it "
                "is not shown",
            )
        )
    return kept, tuple(warnings)
