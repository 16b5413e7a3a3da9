# SPDX-License-Identifier: Apache-2.0
"""The page of the published protocols: only what was measured in full, in the published layout, with its conditions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.unit.bench.test_bench_verb import results, said

from vmtailor.base.files import records
from vmtailor.bench.model.results import BenchFailure, BenchFigure, BenchResults, BenchTrial, HostNoise, SuiteName
from vmtailor.bench.pages.published_tables import published_page


def full(*, hostile: str = "") -> BenchResults:
    found = results(hostile=hostile)
    run = replace(found.runs[0], quick=False, options=(("repeat", "8"),))
    return replace(found, runs=(run,))


def rows(page: str) -> dict[str, list[str]]:
    """The first row of each name."""
    lines = [[word.strip() for word in line.strip("|").split(" | ")] for line in page.splitlines() if line[0:1] == "|"]
    return {line[0]: line[1:] for line in reversed(lines)}


def test_runtimes_stand_across_with_their_intervals() -> None:
    page = published_page(full(), ["bench.json"])
    assert "`vmtailor bench report bench.json --published`" in page
    assert "### startup" in page and "(8 samples a cell)" in page
    assert "|  | native | docker | lxc | gvisor |" in page
    (native, docker, lxc, gvisor) = rows(page)["all reported"]
    assert native.endswith(")") and "ms" in native and "…" in docker and "ms" in lxc
    assert gvisor == "failed: it ended with 128"
    assert "repeat" not in rows(page) and "- x: m" in page  # the last command's, whatever the others had


def test_the_quick_form_is_not_among_it(tmp_path: Path) -> None:
    assert published_page(results(), []) == ""
    both = replace(full(), runs=(*results().runs, *full().runs))
    assert published_page(both, []) == published_page(full(), [])
    file = tmp_path / "quick.json"
    records.save(results(), file)
    ended = said("report", str(file), "--published")
    assert ended.exit_code != 0 and "from --quick" in str(ended.exception)


def test_isolation_is_a_map_and_unixbench_an_index() -> None:
    found = full()
    trials = [
        BenchTrial(
            SuiteName.ISOLATION, "memory", "native", 5, "with limits", block, 0.0, 1.0,
            (BenchFigure("t2 / t1", 1.5, ""), BenchFigure("did not report", 0, "")), noise=HostNoise(0.2, 0.1),
        )
        for block in range(1, 7)
    ] + [
        BenchTrial(
            SuiteName.UNIXBENCH, "pipe", "native", 1, "our set, 1 copy", block, 0.0, 1.0,
            (BenchFigure("score", 1e5, "lps", True),),
        )
        for block in (1, 2, 3)
    ]  # fmt: skip
    run = replace(found.runs[0], trials=tuple(trials))
    page = published_page(replace(found, runs=(run,)), [])
    assert rows(page[page.index("### isolation") :])["memory"] == ["+50 % (+50 … +50)"]
    assert "**UnixBench index, 1 instance, our set, 1 copy** (3 samples a cell)" in page and "needs all twelve" in page
    assert "the host was not quiet" in page


def test_a_strangers_words_are_no_markup() -> None:
    found = full()
    bad = BenchFailure("a | b\n# head <script> `x` [l](u)")
    run = found.runs[0]
    trials = tuple(replace(one, failure=bad) if one.failure else one for one in run.trials)
    page = published_page(replace(found, runs=(replace(run, trials=trials),)), ["a`b.json"])
    assert "\n# head" not in page and "<script>" not in page.replace("\\<script", "")
    assert "a \\| b # head" in page and "\\[l\\](u)" in page
    assert "a`b" not in page


def test_unixbench_in_several_instances_is_laid_out_by_their_number() -> None:
    found = full()
    trials = tuple(
        BenchTrial(
            SuiteName.UNIXBENCH, "pipe", runtime, count, "our set, 1 copy", block, 0.0, 1.0,
            tuple(BenchFigure("score", 1e5 / count, "lps", True, number) for number in range(count)),
        )
        for block in (1, 2, 3)
        for runtime, count in (("native", 1), ("docker", 1), ("docker", 2))
    )  # fmt: skip
    page = published_page(replace(found, runs=(replace(found.runs[0], trials=trials),)), [])
    assert page.count("**UnixBench index") == 2 and "| test | native | docker |" in page
    assert "| test | native | 1 instance | 2 instances |" in page and "50.0 % of one's" in page
