# SPDX-License-Identifier: Apache-2.0
"""How long a machine that is verified is waited for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from vmtailor.model.boots.workload import Patience
from vmtailor.model.machine import Clock
from vmtailor.stages import verify


@pytest.mark.parametrize(
    ("clock", "baseline_cpu_s", "all_s"),
    [
        (Clock.INSTRUCTIONS, 10.0, 90.0),  # a kernel in circles gets no more than the baseline justifies
        (Clock.INSTRUCTIONS, None, 3030.0),  # where the processor time was not to be had: the host's
        (Clock.WALL, 10.0, float("inf")),  # what sleeps takes no time on the instruction clock, and does here
    ],
)
def test_patience_is_counted_in_processor_time(clock: Clock, baseline_cpu_s: float | None, all_s: float) -> None:
    """That the baseline stood 500 seconds in the queue of a busy host allows nothing, and neither does ours."""
    target = cast(Any, SimpleNamespace(machine=SimpleNamespace(clock=clock)))
    boot = SimpleNamespace(seconds=500.0)
    found = verify.patience(target, cast(Any, SimpleNamespace(requests_boot=boot, requests_cpu_s=baseline_cpu_s)))
    assert found == (Patience() if clock is Clock.WALL else Patience(all_s=all_s, still_s=verify.STILL_S))
