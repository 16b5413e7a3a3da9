# SPDX-License-Identifier: Apache-2.0
"""How long a machine that is verified is waited for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from vmtailor.model.machine import Clock
from vmtailor.stages import verify


@pytest.mark.parametrize(
    ("clock", "baseline_s", "patience_s"),
    [
        (Clock.INSTRUCTIONS, 10.0, 120.0),  # a hung kernel is not waited for longer than the baseline justifies
        (Clock.INSTRUCTIONS, 500.0, 660.0),  # never longer than the exercise allows
        (Clock.WALL, 10.0, 660.0),  # what sleeps takes no time on the instruction clock, and does here
    ],
)
def test_patience(clock: Clock, baseline_s: float, patience_s: float) -> None:
    ready = SimpleNamespace(timeout_s=120.0)
    target = cast(Any, SimpleNamespace(machine=SimpleNamespace(clock=clock), exercise=SimpleNamespace(ready=ready)))
    trace = cast(Any, SimpleNamespace(requests_boot=SimpleNamespace(seconds=baseline_s)))
    assert verify.patience_s(target, trace) == patience_s
