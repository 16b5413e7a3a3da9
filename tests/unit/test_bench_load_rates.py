# SPDX-License-Identifier: Apache-2.0
"""The tables of `make bench-load-rates`: the knee beside the rate that the instructions of a request give."""

from __future__ import annotations

from types import ModuleType

import pytest
from tests.fakes.tools import load_tool

from vmtailor.base.figures import grouped
from vmtailor.model.boots.boot import Boot, ContainerRun, Outcome, Phase, PhaseCounts
from vmtailor.model.boots.load_result import LoadResult, LoadStage
from vmtailor.model.exercise import Exercise, Ready, ReadyKind, Step, StepKind
from vmtailor.model.load import Load, LoadPage


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    return load_tool("bench_load_rates")


def boot_of(*stages: LoadStage) -> Boot:
    """Return a boot whose requests take 100 000 instructions each."""
    asked = sum(one.asked for one in stages)
    counts = PhaseCounts(Phase.LOAD, 40_000 * asked, 20_000 * asked, 30_000 * asked, 10_000 * asked)
    container = ContainerRun(requests=asked, loads=(LoadResult(1, stages),))
    return Boot(Outcome.READY, (), 1.0, phases=(counts,), container=container)


def test_the_knee_stands_beside_the_instructions_of_a_request_at_that_rate(bench: ModuleType) -> None:
    sweep = boot_of(LoadStage(10_000.0, 100, 100, held=True), LoadStage(10_800.0, 100, 100))
    rows = bench.knees(
        {("sweep", bench.TAILORED): sweep, (bench.KNEE, bench.TAILORED): boot_of(LoadStage(9_700.0, 9, 9))}
    )
    assert rows[2:] == [f"| fitted kernel | {grouped(10_000)} | {grouped(10_800)} | {grouped(10_000)} | +4.0 % |"]
    assert bench.knees({("sweep", bench.TAILORED): sweep}) == []
    assert bench.knees({(bench.KNEE, bench.TAILORED): sweep}) == []


def test_one_rate_is_asked_for_a_second_and_other_steps_stay(bench: ModuleType) -> None:
    peak = Step(StepKind.PEAK, load=Load((LoadPage(),), sessions=4))
    sweep = Step(StepKind.RATE, load=Load((LoadPage(),), rate=100.0, to_rate=900.0, seconds=0.2))
    steps = bench.at_rate(Exercise("x", Ready(ReadyKind.TCP), (peak, sweep)), 97.0).load
    assert steps[0] == peak
    assert (steps[1].load.rate, steps[1].load.to_rate, steps[1].load.seconds) == (97.0, None, 1.0)
