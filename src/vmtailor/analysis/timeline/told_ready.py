# SPDX-License-Identifier: Apache-2.0
"""End a boot where its user says that the machine is ready: at a message, or when a unit is up."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from vmtailor.analysis.bootlog.boot_record import MAX_TEXT, Observed
from vmtailor.base.bounded_patterns import bounded
from vmtailor.base.errors import UserInputError
from vmtailor.model.boots.timeline import PhaseName, PhaseSpan, WarningCode

#: How the name of a unit ends.
_UNIT = re.compile(r"[\w@.:\\-]{1,255}\.(service|target|mount|socket|path|timer|device|swap|slice|scope|automount)")
#: Characters of the message that are shown.
_SHOWN = 80


def ready_at(observed: Observed, ready: str) -> tuple[int, str]:
    """Return when the machine was ready on the kernel's clock, in microseconds, and by what. `ready`: the name of a
    unit, or a regular expression that is looked for in messages, of which the first counts. Raises UserInputError where
    it is no expression, or nothing in the files with a time fits."""
    if _UNIT.fullmatch(ready):
        return _unit_up(observed, ready)
    try:
        pattern = re.compile(bounded(ready))
    except (re.error, OverflowError) as error:
        raise UserInputError(
            f"--ready {ready!r} is no regular expression: {error}", hint="give a unit's name, or a part of a message"
        ) from error
    if not ready or pattern.match(""):
        raise UserInputError(f"--ready {ready!r} fits every message", hint="give a part of the message that tells it")
    bare = False
    for at_us, text in observed.messages:
        if pattern.search(text):
            if at_us is not None:
                return at_us, f"'{text[:_SHOWN]}'"
            bare = True
    why = "the messages that fit have no time" if bare else "no message fits"
    raise UserInputError(
        f"--ready {ready!r}: {why}", hint="the lines of initcalls and probes, and all but a line's first "
        f"{MAX_TEXT} characters, are not looked at",
    )  # fmt: skip


def _unit_up(observed: Observed, name: str) -> tuple[int, str]:
    ends = [unit.end_us for unit in observed.units if unit.name == name and unit.end_us is not None]
    if ends:
        return min(ends), f"{name} was up"
    for mark in (f"unit-up:{name}", f"target:{name}"):
        if mark in observed.marks:
            return observed.marks[mark][0], f"{name} was up"
    raise UserInputError(
        f"--ready {name}: no file says when this unit was up",
        hint="add `systemd-analyze plot` of this boot; older logs have descriptions instead of names: "
        "--ready 'Started Docker'",
    )


def ended_at(observed: Observed, phases: Sequence[PhaseSpan], ready: tuple[int, str]) -> list[PhaseSpan]:
    """Return the phases of a boot that ends when it was ready: later ones are left out, and the last of them ends
    there. Takes back the warning that the end is unknown."""
    at_us, by = ready
    kept = [p for p in phases if p.name != PhaseName.READY and (p.start_us is None or p.start_us < at_us)]
    for place, phase in enumerate(kept):
        last = place == len(kept) - 1
        if phase.start_us is not None and (last or phase.end_us is None or phase.end_us > at_us):
            kept[place] = msgspec.structs.replace(phase, end_us=at_us, source=f"{_start(phase)}; end: {by} (--ready)")
    observed.warnings[:] = [warning for warning in observed.warnings if warning.code != WarningCode.PHASE_OPEN]
    return [*kept, PhaseSpan(PhaseName.READY, at_us, at_us, f"{by} (--ready)")]


def _start(phase: PhaseSpan) -> str:
    """Return how a phase's start was found, without its end."""
    return phase.source.partition("; end: ")[0].partition("; its end ")[0]
