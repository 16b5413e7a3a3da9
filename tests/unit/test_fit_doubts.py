# SPDX-License-Identifier: Apache-2.0
"""Doubts about a fit: no load is one only where something could have been asked."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.fakes.fit_run_data import fit_run

from vmtailor.model.exercise import DERIVED, Exercise, Expect, Ready, ReadyKind, Step, StepKind
from vmtailor.pipeline.fit import doubts

SERVED = Step(StepKind.HTTP, port=80, expect=Expect(status=200))
CONNECTED = Ready(ReadyKind.TCP, Step(StepKind.TCP, port=80))


@pytest.mark.parametrize(
    ("exercise", "doubtful"),
    [
        (Exercise("x.toml", Ready(ReadyKind.EXIT), expect=Expect(exit_code=3)), False),
        (Exercise("x.toml", CONNECTED, (SERVED,)), False),
        (Exercise("x.toml", CONNECTED), True),
        (Exercise(DERIVED[2], Ready(ReadyKind.EXIT)), True),  # nobody wrote what it is for
    ],
)
def test_no_load_is_a_doubt_only_where_it_could_be_given(exercise: Exercise, doubtful: bool) -> None:
    run = fit_run()
    fitted: Any = SimpleNamespace(
        plan=replace(run.plan, given_up=()),
        verification=SimpleNamespace(varying=()),
        kernel=SimpleNamespace(unplanned=()),
    )
    before, after = (replace(side, spread=()) for side in (run.baseline, run.tailored))
    found = doubts(fitted, before, after, exercise)
    assert ["no-load"] * doubtful == [warning.code for warning in found]
