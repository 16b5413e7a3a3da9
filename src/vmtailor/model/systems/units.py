# SPDX-License-Identifier: Apache-2.0
"""The units that started in a system, and what a fit did about each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

#: Properties of a unit that systemd is asked for. The last two: when it left the inactive state, and became active.
PROPERTIES = (
    "Id", "Names", "LoadState", "ActiveState", "FragmentPath", "Requires", "Requisite", "BindsTo", "Wants", "After",
    "TriggeredBy", "Listen", "InactiveExitTimestampMonotonic", "ActiveEnterTimestampMonotonic",
)  # fmt: skip


class UnitsMode(StrEnum):
    """`keep`: nothing is touched, candidates are named. `ask`: they are listed, and somebody is asked. `trim`: what the
    exercise does without is masked."""

    KEEP = "keep"
    ASK = "ask"
    TRIM = "trim"


class UnitFate(StrEnum):
    """The decisions on a unit."""

    KEPT = "kept"  # not masked by itself, whatever the exercise says (data/units/kept.toml)
    WANTED = "wanted"  # the exercise names it, asked it, or needs it
    CANDIDATE = "candidate"  # nobody wanted it, and it was left as it is
    MASKED = "masked"  # the exercise passes without it
    NEEDED = "needed"  # a trial without it failed
    NO_ROOM = "no room"  # the command line has no room for one more word


@dataclass(frozen=True)
class UnitStanding:
    """`start_s`: seconds that its start took on the system's own kernel, which is the most that masking it can gain;
    None where systemd does not tell. `reason`: why, in words. `named`: whoever fitted the system does without it
    (`--mask`)."""

    name: str
    fate: UnitFate
    reason: str
    start_s: float | None = None
    named: bool = False


@dataclass(frozen=True)
class UnitChoice:
    """All units that may be masked, those whose start took longest first. `cut`: there were more than could be read.
    `unmatched`: names and patterns of `--mask` that no unit has which started."""

    mode: UnitsMode
    units: tuple[UnitStanding, ...]
    cut: bool = False
    unmatched: tuple[str, ...] = ()

    def of(self, fate: UnitFate) -> tuple[str, ...]:
        return tuple(one.name for one in self.units if one.fate is fate)
