# SPDX-License-Identifier: Apache-2.0
"""`vmtailor boot --exercise`: a system with an init of its own, driven by an exercise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vmtailor.base import natives, output
from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError
from vmtailor.base.progress import step
from vmtailor.model.boots.series import BootSeries
from vmtailor.model.machine import Machine
from vmtailor.pipeline.systems import exercising


@dataclass(frozen=True)
class SystemRequest:
    """What the user asked for. `machine`: what was chosen of it, without the system's disk; its kernel is None for the
    system's own."""

    subject: str
    exercise: Path
    machine: Machine
    times: int
    timeout_s: float
    out: Path
    partition: int | None = None


def refuse(options: Sequence[tuple[str, object]]) -> None:
    """Raise UserInputError for options that have no meaning beside an exercise."""
    given = [name for name, value in options if value]
    if given:
        raise UserInputError(
            f"{', '.join(given)}: with --exercise, the exercise says when the system is ready and what is right",
            hint="leave it out, or boot without --exercise",
        )


def boots(request: SystemRequest) -> BootSeries:
    """The system booted, driven and shut down, so many times."""
    with step(f"boot and exercise {Path(request.subject).name}") as progress:

        def on_boot(name: str, number: int, seconds: float) -> None:
            progress.update(number - 1, request.times, f"{name} {number}: {seconds:.0f} s")

        found = exercising.exercised(
            request.subject, request.exercise, request.machine, request.out, times=request.times,
            timeout_s=request.timeout_s, natives=natives.locate(), store=Store(), partition=request.partition,
            on_boot=on_boot,
        )  # fmt: skip
    for sentence in found.notes:
        output.note(sentence)
    return found.series
