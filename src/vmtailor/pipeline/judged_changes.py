# SPDX-License-Identifier: Apache-2.0
"""The figures that the changes of a fit (`fit --try`) are judged by, checked before anything long begins."""

from __future__ import annotations

from vmtailor.analysis.cost import load_latency
from vmtailor.base.errors import UserInputError
from vmtailor.model.boots.series import JudgedBy, judging
from vmtailor.model.boots.system_exercise import SystemExercise
from vmtailor.model.exercise import Exercise
from vmtailor.model.machine import Clock
from vmtailor.pipeline.options import FitOptions
from vmtailor.stages import system_verify

#: The figures that the fit of a system measures.
OF_SYSTEM = (JudgedBy.READY, JudgedBy.REQUEST_KERNEL, JudgedBy.REQUEST)


def require_tried(options: FitOptions) -> None:
    """Raise UserInputError for a way to judge changes where none is tried."""
    if (options.under or options.judged_by) and not options.tries and not options.files:
        name = "--under" if options.under else "--judge"
        raise UserInputError(f"{name} says how changes are judged, and none is tried", hint=f"--try CHANGE {name} …")


def of_image(options: FitOptions, exercise: Exercise) -> tuple[JudgedBy, ...]:
    """Return the figures of an image's fit. Raises UserInputError for those that its exercise cannot give."""
    found = judging(options.under, options.judged_by)
    if any(one.of_load for one in found):
        _require_load(bool(exercise.load))
    load_latency.require_enough(found, exercise)
    return found


def of_system(options: FitOptions, exercise: SystemExercise) -> tuple[JudgedBy, ...]:
    """Return the figures of a system's fit. Raises UserInputError for those that its fit does not measure, and for a
    load that it has not, or that is asked from outside."""
    found = judging(options.under, options.judged_by)
    for one in found:
        if one not in OF_SYSTEM:
            raise UserInputError(f"--judge {one} is not measured of a system", hint=f"--judge {', '.join(OF_SYSTEM)}")
    if any(one.of_load for one in found):
        _require_load(bool(exercise.load))
        if system_verify.clock_for(exercise) is not Clock.INSTRUCTIONS:
            raise UserInputError(
                "--under load counts instructions, and this exercise is asked from outside, on the host's clock",
                hint="ask from inside of the system: steps of kind command, http or tcp",
            )
    return found


def _require_load(has: bool) -> None:
    if not has:
        raise UserInputError("--under load needs an exercise that asks for something", hint="--exercise FILE")
