# SPDX-License-Identifier: Apache-2.0
"""Made-up boots of a series."""

from __future__ import annotations

from typing import Any

from vmtailor.model.boots.boot import Boot, Milestone, Outcome
from vmtailor.model.boots.ending import End, Ending, Gathered
from vmtailor.model.boots.series import SeriesBoot

#: What a boot left that was never made.
GATHERED = Gathered(End(Ending.EXITED, "qemu", "", "", 1.0, 0), 0.0)


def series_boot(
    variant: str, number: int, outcome: Outcome = Outcome.READY, marks: tuple[Milestone, ...] = (),
    seconds: float = 1.0, *, folder: str = "", problem: str = "", **more: Any,
) -> SeriesBoot:  # fmt: skip
    failures = (problem,) if problem else ()
    boot = Boot(outcome, marks, seconds, failures=failures, **more)
    return SeriesBoot(variant, number, folder or f"{variant}-{number}", boot)
