# SPDX-License-Identifier: Apache-2.0
"""The search for the least memory that an instance starts in."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.bench.analysis.benchmarks import BenchTest
from vmtailor.bench.model.instance import Limits
from vmtailor.bench.model.results import SuiteName
from vmtailor.bench.suites.bench_run import RUN_OVER, TIMED_OUT, TrialFailed
from vmtailor.bench.suites.instance_memory import LEAST, MOST, STEP, InstanceMemory


class Run:
    """Stands for the run: an instance needs so much memory; `over`: the run's time is, when it is asked once more."""

    def __init__(self, needs: int, over: int = 1000) -> None:
        self.needs, self._over = needs, over
        self.asked: list[int] = []

    def run(self, _runtime: str, _command: list[str], *, deadline_s: float, limits: Limits) -> Any:
        assert limits.memory_bytes is not None and deadline_s > 0 and limits.cpus is None
        if len(self.asked) == self._over:
            raise TrialFailed(RUN_OVER)
        self.asked.append(limits.memory_bytes)
        if limits.memory_bytes < self.needs:
            raise TrialFailed(TIMED_OUT if limits.memory_bytes % (2 * STEP) else "it ended with 137")
        return SimpleNamespace(returncode=0)


def least(run: Any) -> float:
    (figure,) = InstanceMemory().trial(run, BenchTest(SuiteName.MEMORY, "least"), "native")
    assert figure.unit == "B" and not figure.larger_is_better
    return figure.value


@given(st.integers(LEAST + 1, MOST))
def test_what_is_found_starts_and_little_less_does_not(needs: int) -> None:
    run = Run(needs)
    high = int(least(run))
    assert high in run.asked and needs <= high < needs + max(STEP, high // 16) and len(run.asked) < 20


def test_what_does_not_start_in_the_most_has_no_figure() -> None:
    with pytest.raises(TrialFailed, match="it does not start in 512 MiB"):
        least(Run(MOST + 1))


@pytest.mark.parametrize("over", [0, 3])
def test_that_the_run_is_over_says_nothing_of_the_memory(over: int) -> None:
    with pytest.raises(TrialFailed, match=RUN_OVER):
        least(Run(7 << 20, over))
