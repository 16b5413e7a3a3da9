# SPDX-License-Identifier: Apache-2.0
"""Trials → cells, merged files, and CSV."""

from __future__ import annotations

import csv
import io
import random
from dataclasses import replace
from pathlib import Path

import pytest

from vmtailor.base.errors import UserInputError
from vmtailor.base.files import records
from vmtailor.bench.analysis.cells import Cell, against, cells
from vmtailor.bench.analysis.host_runs import merged
from vmtailor.bench.analysis.samples_csv import HEAD, csv_of
from vmtailor.bench.model.results import (
    BenchFailure,
    BenchFigure,
    BenchHost,
    BenchResults,
    BenchTrial,
    HostNoise,
    HostRun,
    RuntimeIdentity,
    SuiteName,
)
from vmtailor.bench.pages.overview import doubts_of
from vmtailor.model.change import Verdict

HOST = BenchHost("here", "6.1.0", "a processor", 2, 1 << 33, "x", "v2", False, True, 2000.0)


def trial(runtime: str, block: int, *values: float, name: str = "exit", larger: bool = False) -> BenchTrial:
    figures = tuple(BenchFigure(name, value, "s", larger, number) for number, value in enumerate(values))
    return BenchTrial(
        SuiteName.STARTUP, "report", runtime, max(1, len(values)), "warm", block, 1000.0 + block, 1.0, figures,
        noise=HostNoise(0.0, 0.02),
    )  # fmt: skip


def results(*trials: BenchTrial) -> BenchResults:
    run = HostRun(HOST, "sha256:0", True, 1, (("repeat", "4"),), (RuntimeIdentity("native"),), trials)
    return BenchResults("0", (run,))


def cell(found: list[Cell], runtime: str) -> Cell:
    return next(one for one in found if one.key.runtime == runtime)


def test_warm_ups_count_for_nothing_and_instances_are_averaged_first() -> None:
    found = cells([trial("native", 0, 99.0, 99.0), trial("native", 1, 1.0, 3.0), trial("native", 2, 3.0, 5.0)])
    assert [one.values for one in found] == [(2.0, 4.0)]
    assert found[0].spread_over_instances == 2.0 and found[0].summary and found[0].summary.median == 3.0


def test_a_failure_is_a_cell_with_its_reason() -> None:
    failed = replace(trial("docker", 1), failure=BenchFailure("it did not end in time", "its words"))
    found = cells([trial("native", 1, 1.0), failed])
    assert cell(found, "docker").summary is None
    assert cell(found, "docker").failures[0].reason == "it did not end in time"
    assert cell(found, "docker").key.figure == "exit"  # in the row where its figure would stand


def test_where_all_fail_there_is_a_cell_still() -> None:
    found = cells([replace(trial("docker", 1), failure=BenchFailure("no"))])
    assert [one.key.figure for one in found] == ["report"] and found[0].failures


@pytest.mark.parametrize(("larger", "verdict"), [(False, Verdict.WORSE), (True, Verdict.BETTER)])
def test_more_is_better_or_worse_by_what_is_measured(larger: bool, verdict: Verdict) -> None:
    draw = random.Random(3)
    native = [draw.gauss(1.0, 0.01) for _ in range(12)]
    other = [draw.gauss(2.0, 0.01) for _ in range(12)]
    found = against(native, other, larger_is_better=larger)
    assert found is not None and found.verdict is verdict
    assert found.low is not None and found.high is not None and found.low < found.ratio < found.high
    assert found.ratio == pytest.approx(2.0, abs=0.05)


def test_too_few_samples_never_tell() -> None:
    found = against([1.0, 1.01], [3.0, 3.01], larger_is_better=False)
    assert found is not None and found.verdict is Verdict.UNDECIDED


def test_of_equal_sides_few_differ() -> None:
    """A against A: false alarms are as rare as the level says."""
    draw = random.Random(11)
    alarms = 0
    for _ in range(100):
        first, second = ([draw.lognormvariate(0, 0.05) for _ in range(10)] for _ in range(2))
        found = against(first, second, larger_is_better=False)
        alarms += found is not None and found.verdict in (Verdict.BETTER, Verdict.WORSE)
    assert alarms <= 8


def test_files_merge_and_what_both_have_is_there_once(tmp_path: Path) -> None:
    one, two = results(trial("native", 1, 1.0)), results(trial("native", 1, 1.0), trial("docker", 1, 2.0))
    elsewhere = replace(one, runs=(replace(one.runs[0], host=replace(HOST, name="there")),))
    found = merged([one, two, elsewhere])
    assert [len(run.trials) for run in found.runs] == [2, 1]
    records.save(found, tmp_path / "bench.json")
    assert records.load(BenchResults, tmp_path / "bench.json") == found


def test_results_of_another_schema_are_refused(tmp_path: Path) -> None:
    (tmp_path / "bench.json").write_text('{"schema": "vmtailor/bench/0"}')
    with pytest.raises(UserInputError, match="schema"):
        records.load(BenchResults, tmp_path / "bench.json")


def test_csv_has_every_sample_and_every_failure() -> None:
    failed = replace(trial("docker", 1), failure=BenchFailure("a reason, with a comma"))
    rows = list(csv.DictReader(io.StringIO(csv_of(results(trial("native", 1, 1.5, 2.5), failed)))))
    assert len(rows) == 3 and set(rows[0]) == set(HEAD)
    assert [row["value"] for row in rows] == ["1.5", "2.5", ""]
    assert rows[2]["failure"] == "a reason, with a comma" and rows[2]["runtime"] == "docker"


def test_the_interval_of_a_ratio_has_the_spread_of_both_sides() -> None:
    draw = random.Random(4)
    native = [draw.uniform(0.40, 0.60) for _ in range(10)]
    engine = [draw.uniform(398.0, 403.0) for _ in range(10)]
    found = against(native, engine, larger_is_better=False)
    assert found is not None and found.low is not None and found.high is not None
    assert found.high / found.low > 1.1  # not that of the engine alone, which varies by a hundredth
    turned = against(engine, native, larger_is_better=False)
    assert turned is not None and turned.low == pytest.approx(1 / found.high)
    rates = against(native, engine, larger_is_better=True)
    assert rates is not None and (rates.low, rates.high) == pytest.approx((found.low, found.high))
    assert rates.verdict is Verdict.BETTER and found.verdict is Verdict.WORSE


def test_so_few_samples_that_none_could_tell_are_never_the_same() -> None:
    for count, verdict in ((2, Verdict.UNDECIDED), (3, Verdict.UNDECIDED), (4, Verdict.SAME)):
        values = [1.0 + number / 1000 for number in range(count)]
        found = against(values, values, larger_is_better=False)
        assert found is not None and found.verdict is verdict


def test_what_can_be_below_nothing_is_compared_as_it_is() -> None:
    found = against([1.0, -0.1, 1.2, 1.1], [10.0, 11.0, 10.5, 9.5], larger_is_better=False)
    assert found is not None and found.verdict is Verdict.WORSE and found.ratio > 9


def test_merged_runs_keep_the_conditions_of_all_and_the_last_word_on_each_runtime() -> None:
    one = results(trial("native", 1, 1.0)).runs[0]
    first = replace(
        one,
        options=(("our set flags", "-O3"),),
        left_out=("docker: docker not found", "startup: http: left out, to end within 60 min", "isolation: not now"),
    )
    second = replace(
        one, identities=(RuntimeIdentity("docker"),), options=(("isolation limits", "1 CPU"),), left_out=()
    )
    (found,) = merged([BenchResults("0", (first,)), BenchResults("0", (second,))]).runs
    assert dict(found.options) == {"our set flags": "-O3", "isolation limits": "1 CPU"}
    assert found.left_out == ("isolation: not now",)  # docker is there now, and who has no --within has all the time
    assert [one.runtime for one in found.identities] == ["native", "docker"]


def test_a_runtime_that_was_measured_after_native_is_told_from_one_in_the_same_blocks() -> None:
    later = [replace(trial("lxc", block, 1.0), started_unix_s=5000.0 + block) for block in (1, 2)]
    found = cells([*(trial(name, block, 1.0) for block in (1, 2) for name in ("native", "docker")), *later])
    assert [cell(found, name).apart for name in ("native", "docker", "lxc")] == [False, False, True]
    assert doubts_of(cell(found, "lxc")) == ["not at the same time as native"]
