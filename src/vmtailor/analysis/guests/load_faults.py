# SPDX-License-Identifier: Apache-2.0
"""The faults of loads, in sentences."""

from __future__ import annotations

from collections.abc import Mapping

from vmtailor.base import figures
from vmtailor.model.boots.load_result import LoadResult, LoadStage
from vmtailor.model.exercise import Step

#: Words for the ways in which requests fail.
_WORDS = {
    "refused": "refused",
    "reset": "cut off",
    "timeout": "not answered in time",
    "unsent": "not sent in time",
    "wrong": "wrong",
    "other": "failed",
}


def fault(step: Step, result: LoadResult | None) -> str:
    """Return the fault of a load that the client told of; empty where it has none. A sweep may fail at any rate but its
    lowest: that is where it ends."""
    if result is None or not result.stages:
        return "its client told nothing of it"
    first = result.stages[0]
    if not result.whole:
        return "its client did not tell all of it"
    if first.failed or first.gave_up:
        return of_stage(first)
    if first.rate is not None and not first.held:
        got = figures.grouped(first.achieved or 0)
        return f"{_at(first)}{got} a second were answered: the machine can give no more on this clock"
    wrong = next((one for one in result.stages if dict(one.failures).get("wrong")), None)
    return f"{_at(wrong)}{_failures(wrong)}{_why(wrong)}" if wrong is not None else ""


def told(step: Step, number: int, loads: Mapping[int, LoadResult]) -> str:
    """Return the sentence about a load by its number in the guest, or an empty one."""
    found = fault(step, loads.get(number))
    return f"load step {number + 1} ({step.title}): {found}" if found else ""


def of_stage(stage: LoadStage) -> str:
    """Return what failed in one stage, in a sentence; empty where nothing did."""
    if not stage.failed and not stage.gave_up:
        return ""
    return f"{_at(stage)}{stage.right} of {stage.asked} right ({_failures(stage)}){_why(stage)}"


def _at(stage: LoadStage) -> str:
    return f"at {figures.grouped(stage.rate)} requests a second, " if stage.rate is not None else ""


def _failures(stage: LoadStage) -> str:
    found = [f"{figures.grouped(count)} {_WORDS[kind]}" for kind, count in stage.failures]
    return ", ".join([*found, *(["the rest was not asked"] if stage.gave_up else [])])


def _why(stage: LoadStage) -> str:
    return f": {stage.why}" if stage.why else ""
