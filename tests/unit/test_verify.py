# SPDX-License-Identifier: Apache-2.0
"""How long a machine is waited for: processor time, where nobody waits for the host."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from vmtailor.model.boots.workload import BUSY_TIMES, STILL_S, Exercised, Patience, Run
from vmtailor.model.machine import Clock
from vmtailor.stages import verify


@pytest.mark.parametrize(
    ("baseline_cpu_s", "all_s"),
    [
        (10.0, 90.0),  # a kernel in circles gets no more than the baseline justifies
        (None, 3030.0),  # where the processor time was not to be had: the host's
    ],
)
def test_patience_is_counted_in_processor_time(baseline_cpu_s: float | None, all_s: float) -> None:
    """That the baseline stood 500 seconds in the queue of a busy host allows nothing, and neither does ours."""
    boot = SimpleNamespace(seconds=500.0)
    found = verify.patience(cast(Any, SimpleNamespace(requests_boot=boot, requests_cpu_s=baseline_cpu_s)))
    assert found == Patience(all_s=all_s)


def test_only_where_machines_wait_for_nobody_time_is_processor_time() -> None:
    work = Exercised(Run(key=b""), 300.0)
    assert work.unhurried(Clock.WALL) is work and work.unhurried(Clock.WALL, Patience(all_s=1.0)) is work
    found = work.unhurried(Clock.INSTRUCTIONS)
    assert found.timeout_s == BUSY_TIMES * 300.0 and found.patience == Patience(all_s=300.0, still_s=STILL_S)
    given = work.unhurried(Clock.INSTRUCTIONS, Patience(5.0, 20.0)).patience
    assert given == Patience(5.0, 20.0, STILL_S)
