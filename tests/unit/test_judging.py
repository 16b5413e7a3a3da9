# SPDX-License-Identifier: Apache-2.0
"""One function judges every change: by whether it works, then by figures."""

from __future__ import annotations

import pytest

from vmtailor.analysis.changes.effects import Samples, TrialRun, judge
from vmtailor.model.change import Figure, Verdict, symbol

CHANGE = symbol("AUDIT", "n", before="y")


def run(*values: float, failures: tuple[str, ...] = (), exact: bool = True) -> TrialRun:
    return TrialRun(failures, (Samples(Figure.INIT_INSTRUCTIONS, values, exact),) if values else ())


@pytest.mark.parametrize(
    ("before", "after", "verdict", "value"),
    [
        (run(100), run(90), Verdict.BETTER, -10),
        (run(100), run(120), Verdict.WORSE, 20),
        (run(100), run(100), Verdict.SAME, 0),
        (run(100), run(failures=("panic",)), Verdict.WORSE, None),
        (run(failures=("no answer",)), run(120), Verdict.BETTER, None),  # a repair
        (run(failures=("no answer",)), run(failures=("no answer",)), Verdict.UNDECIDED, None),
        (run(), run(), Verdict.UNDECIDED, None),
        (run(100, exact=False), run(90, exact=False), Verdict.UNDECIDED, -10),  # one boot of a figure that varies
    ],
)
def test_verdicts(before: TrialRun, after: TrialRun, verdict: Verdict, value: float | None) -> None:
    found = judge(CHANGE, before, after)
    assert found.verdict is verdict
    assert [effect.value for effect in found.measured] == ([] if value is None else [value])
    assert found.problem == "; ".join(after.failures)
    assert found.settings == CHANGE.settings


def test_figures_beside_the_one_that_is_judged_by_are_measured_too() -> None:
    sides = [
        TrialRun(samples=(Samples(Figure.READY, (ready,), exact=True), Samples(Figure.CPU, (cpu,)))) for ready, cpu in
        ((5.0, 2.0), (4.0, 3.0))
    ]  # fmt: skip
    found = judge(CHANGE, *sides)
    assert found.verdict is Verdict.BETTER  # by ready, though it takes more processor time
    cpu = found.measures(Figure.CPU)
    assert cpu is not None and (cpu.value, cpu.unit) == (1.0, "s")


def test_an_effect_has_the_interval_the_right_way_round() -> None:
    before, after = run(*range(100, 140), exact=False), run(*range(80, 120), exact=False)
    (effect,) = judge(CHANGE, before, after).measured
    assert effect.low <= effect.value <= effect.high < 0
