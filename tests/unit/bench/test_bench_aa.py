# SPDX-License-Identifier: Apache-2.0
"""The judge of `make bench-aa`, on sides whose truth is known; and what the harness adds, on a program that is."""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from vmtailor.bench.model.results import BenchFigure, BenchHost, BenchTrial, HostRun, SuiteName
from vmtailor.drivers.host.host_client import free_port

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
import bench_aa
import bench_overhead

HOST = BenchHost("here", "6.1.0", "a processor", 2, 1 << 33, "x", "v2", False, False)


def run_of(spread: float, blocks: int = 60, *, bias: float = 1.0, larger: bool = False) -> HostRun:
    draw = random.Random(7)
    trials = [
        BenchTrial(
            SuiteName.STARTUP, "apart", f"native-{side}", 1, "warm", block, 0.0, 1.0,
            (BenchFigure("start", draw.gauss(1.0, spread) * (bias if side == "b" else 1.0), "s", larger),),
        )
        for block in range(blocks + 1)
        for side in "ab"
    ]  # fmt: skip
    return HostRun(HOST, "sha256:0", True, 1, (), (), tuple(trials))


def test_the_bound_of_a_rate_is_that_of_clopper_and_pearson() -> None:
    assert bench_aa.upper_bound(0, 400) == pytest.approx(1 - 0.05 ** (1 / 400), abs=1e-6)
    assert bench_aa.upper_bound(20, 400) == pytest.approx(0.0721, abs=1e-3)
    assert bench_aa.upper_bound(22, 400) < 0.08 < bench_aa.upper_bound(25, 400)
    assert bench_aa.upper_bound(4, 4) == 1.0


def test_warm_ups_are_left_out_and_blocks_are_paired() -> None:
    (pair,) = bench_aa.pairs(run_of(0.01, blocks=5))
    assert pair.name == "native: startup apart warm, start" and len(pair.values) == 5


def judged_of(found: list[bench_aa.Pair], size: int, comparisons: int) -> bench_aa.Judged:
    judged = bench_aa.judge(found, bench_aa.fixed(found, {"startup": size}), comparisons)
    assert judged is not None
    return judged


@pytest.mark.lengthy
@pytest.mark.parametrize("larger", [False, True])
def test_of_sides_that_are_the_same_few_differ_and_what_is_injected_is_found(larger: bool) -> None:
    found = bench_aa.pairs(run_of(0.015, larger=larger))
    assert found[0].spread == pytest.approx(0.015, rel=0.3)
    judged = judged_of(found, 20, 200)
    assert judged.compared == 200 and judged.able == (found[0].name,)
    assert judged.bound <= bench_aa.MOST_FALSE
    assert judged.found >= bench_aa.LEAST_FOUND * judged.injected > 0


@pytest.mark.lengthy
def test_a_bias_between_the_names_is_seen(capsys: pytest.CaptureFixture[str]) -> None:
    run = run_of(0.1, 400, bias=1.1)
    (pair,) = found = bench_aa.pairs(run)
    assert pair.bias == pytest.approx(1.1, abs=0.02)
    # The rate of false alarms is not where it shows: names that are exchanged in half of the blocks have little of it.
    assert judged_of(found, 200, 100).false < 30
    assert bench_aa.show(found, run, [judged_of(found, 200, 2)]) is False
    said = capsys.readouterr().out
    assert " NO   the names differ by chance alone" in said
    assert (
        f"one name differs from the other throughout, {pair.bias:.3f} to 1: native: startup apart warm, start" in said
    )
    # Below what is of interest, or within chance, it is none.
    assert bench_aa.pairs(run_of(0.01, 400, bias=1.01))[0].bias is None
    assert all(bench_aa.pairs(run_of(spread, 100))[0].bias is None for spread in (0.01, 0.1, 0.3))


@pytest.mark.lengthy
def test_cells_that_scatter_too_much_are_named_and_not_counted() -> None:
    found = bench_aa.pairs(run_of(0.3))
    judged = judged_of(found, 10, 40)
    assert judged.injected == 0 and judged.unable == (found[0].name,)
    assert bench_aa.fixed(found, {"startup": 61}) == bench_aa.fixed(found, {"unixbench": 10}) == {}
    assert bench_aa.judge(found, {}) is None
    assert bench_aa.show(found, run_of(0.3), [judged]) is False


@pytest.mark.lengthy
def test_a_spread_asks_for_as_many_blocks_as_settle_it() -> None:
    (quiet,), (noisy,) = (bench_aa.pairs(run_of(spread, 400)) for spread in (0.02, 0.1))
    assert quiet.needed == 10 and 100 < noisy.needed < 200
    assert noisy.allows(int(noisy.needed)) and not noisy.allows(10)
    judged = bench_aa.judge([noisy], {noisy.name: int(noisy.needed)}, comparisons=200)
    assert judged is not None and judged.undecided <= 20 and judged.found >= 180
    assert bench_aa.every([quiet, noisy], ["startup"]) == {noisy.name: 400}
    assert bench_aa.every([quiet, noisy], ["unixbench"]) == {}
    # One value a side tells nothing of a spread.
    assert bench_aa.pairs(run_of(0.1, 1))[0].needed == float("inf")


def test_a_test_goes_on_until_its_figures_have_what_they_ask_for() -> None:
    run = run_of(0.1)
    (pair,) = found = bench_aa.pairs(run)
    way = ("startup", "apart", "warm")
    assert pair.needed > 60 and bench_aa.lacking(found).keys() == {way}
    assert pair.needed < bench_aa.lacking(found)[way] <= 1.1 * pair.needed + 1
    assert bench_aa.lacking(bench_aa.pairs(run_of(0.1, 400))) == {}
    # What takes more than the limit is not measured for the sake of coming near.
    assert bench_aa.lacking(bench_aa.pairs(run_of(0.6))) == {}


def test_it_measures_on_by_test_and_ends_where_blocks_fail(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = []
    found = bench_aa.pairs(run_of(0.1))
    monkeypatch.setattr(bench_aa, "_bench", lambda suite, *words: asked.append((suite, *words[:6])))
    monkeypatch.setattr(bench_aa, "_measured", lambda results: found)
    bench_aa.measure(tmp_path, None)
    blocks = str(bench_aa.lacking(found)["startup", "apart", "warm"])
    assert [(suite, *words[:4]) for suite, *words in asked[:2]] == [
        (part.suite, "--only", part.tests, "--repeat", str(part.blocks)) for part in bench_aa.PARTS
    ]
    assert asked[2:] == [("startup", "--only", "apart", "--variant", "warm", "--repeat", blocks)]
    bench_aa.measure(tmp_path, 5)
    assert [words[4] for words in asked[3:]] == ["5", "5"]


def test_a_part_that_was_not_measured_is_not_passed(capsys: pytest.CaptureFixture[str]) -> None:
    run = run_of(0.01, blocks=400)
    judged = judged_of(bench_aa.pairs(run), 400, 2)
    assert judged.size == "n = 400 of startup" and judged.false == judged.undecided == 0
    assert bench_aa.show(bench_aa.pairs(run), run, [replace(judged, compared=400)]) is False
    said = capsys.readouterr().out
    assert said.count(" NO  ") == 1 and " NO   all tests measured" in said


def test_every_suite_has_its_own_number_of_blocks() -> None:
    pairs = bench_aa.pairs(run_of(0.01, blocks=80))
    found = [*pairs, bench_aa.Pair("other", "unixbench", "pipe", "", False, pairs[0].values[:10])]
    judged = bench_aa.judge(found, bench_aa.fixed(found, {"startup": 80, "unixbench": 10}), comparisons=20)
    assert judged is not None and len(judged.able) == 2
    assert judged.size == "n = 80 of startup, n = 10 of unixbench"
    judged = bench_aa.judge(found, {"native: startup apart warm, start": 20, "other": 10}, comparisons=2)
    assert judged is not None and judged.size == "n = 20 of startup, n = 10 of unixbench"
    assert all(len(part.sizes) == len(bench_aa.LEVELS) for part in bench_aa.PARTS)
    assert all(part.sizes[-1] < part.blocks < part.most for part in bench_aa.PARTS)


def test_what_the_harness_adds_is_measured_with_an_interval(tmp_path: Path) -> None:
    program = bench_overhead.compiled(tmp_path)
    assert all(value > 0 for value in bench_overhead.started(program, 3))
    assert len(bench_overhead.started_bare(program, 3)) == 3
    (tmp_path / "go").touch()
    assert bench_overhead.spun(program, 0.05) > 0 and bench_overhead.spun_bare(program, 0.05, tmp_path) > 0
    assert bench_overhead.spun_together(program, 0.05, tmp_path / "one") > 0
    for how in (bench_overhead.polled, bench_overhead.polled_bare):
        assert 0 < how(program, free_port()) < 30
    difference, low, high = bench_overhead.interval([2.0, 2.1, 1.9], [1.0, 1.1, 0.9])
    assert low <= difference <= high and difference == pytest.approx(1.0)


def test_each_goal_is_judged_by_its_own_samples(capsys: pytest.CaptureFixture[str]) -> None:
    quick = bench_overhead.Sides([0.0012, 0.0011, 0.0013] * 5, [0.0010, 0.0011, 0.0009] * 5)
    slow = bench_overhead.Sides([0.0042, 0.0041, 0.0043] * 5, [0.0010, 0.0011, 0.0009] * 5)
    same = bench_overhead.Sides([100.0, 100.1, 99.9] * 5, [100.0, 100.1, 99.9] * 5)
    lost = bench_overhead.Sides([95.0, 95.1, 94.9] * 5, [100.0, 100.1, 99.9] * 5)
    holds = bench_overhead.show({"start-up": quick, "HTTP": slow, "throughput": same, "together": lost}, 1.0)
    assert list(holds.values()) == [True, False, True, False]
    said = capsys.readouterr().out
    assert "HTTP: 15 starts" in said and "together: 15 loops of 1 s: +5.00 % lost" in said
