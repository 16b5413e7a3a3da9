# SPDX-License-Identifier: Apache-2.0
"""The UnixBench index: scores, indices and tables by the published definitions."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from vmtailor.base.errors import UserInputError
from vmtailor.bench.analysis.benchmarks import INDEX
from vmtailor.bench.analysis.cells import cells
from vmtailor.bench.analysis.schedule import plan
from vmtailor.bench.analysis.unixbench_index import (
    check_rows,
    checked,
    index_rows,
    index_tables,
    index_title,
    published_score,
    tables_over_n,
    without_worst_third,
)
from vmtailor.bench.model.job import BenchJob
from vmtailor.bench.model.results import BenchFigure, BenchTrial, SuiteName
from vmtailor.bench.suites.published_sets import UNIXBENCH, check, tree_digest
from vmtailor.bench.suites.unixbench import UnixBench

JOB = BenchJob((SuiteName.UNIXBENCH,), ("native",), (1, 4), 10, False, 1, "", "", "", "", "", "")


def trial(test: str, block: int, *scores: float, runtime: str = "docker") -> BenchTrial:
    figures = tuple(BenchFigure("score", value, "lps", True, number) for number, value in enumerate(scores))
    return BenchTrial(SuiteName.UNIXBENCH, test, runtime, max(1, len(scores)), "w", block, 0.0, 1.0, figures)


def test_the_twelve_tests_have_their_published_baselines() -> None:
    assert len(INDEX) == 12 and INDEX["shell8"].baseline == 6.0 and INDEX["whetstone-double"].baseline == 55.0
    assert sum(test.seconds(quick=False) for test in INDEX.values()) == 5 * 10 + 5 * 30 + 2 * 60


@pytest.mark.parametrize(
    ("test", "said", "seconds", "score"),
    [
        ("pipe", "COUNT|5000|1|lps\n", 2.0, 2500.0),  # per second of what it took
        ("pipe", "COUNT|5000|1|lps\nTIME|4.0\n", 2.0, 1250.0),  # per second of what it says it took
        ("shell1", "noise\nCOUNT|50|60|lpm\n", 30.0, 100.0),  # a minute's worth
        ("fstime", "COUNT|123456|0|KBps\n", 30.0, 123456.0),  # a rate already
        ("whetstone-double", "MWIPS             4321.5   9.9\n", 10.0, 4321.5),
        ("pipe", "MWIPS 1\n", 10.0, None),
        ("pipe", "COUNT|x|1|lps", 10.0, None),
    ],
)
def test_what_published_programs_print_is_their_score(test: str, said: str, seconds: float, score: float) -> None:
    assert published_score(test, said, seconds) == score


def test_the_worst_third_is_dropped_rounded_down() -> None:
    assert without_worst_third([8.0, 2.0, 1.0]) == pytest.approx(4.0)
    assert without_worst_third([9.0, 4.0]) == pytest.approx(6.0)
    assert without_worst_third([1.0] * 3 + [16.0] * 7) == pytest.approx(16.0)


def test_data_n_is_the_mean_of_means_and_the_index_is_of_it() -> None:
    found = cells([trial("pipe", 0, 1.0, 1.0), trial("pipe", 1, 12440.0, 24880.0), trial("pipe", 2, 24880.0, 37320.0)])
    (table,) = index_tables(found, ["docker"])
    ((test, ((runtime, one),)),) = table.rows
    assert (test, runtime, table.count) == ("pipe", "docker", 2)
    assert one.data_n == pytest.approx(24880.0) and one.index == pytest.approx(20.0)
    assert one.low <= one.data_n <= one.high and table.overall == ()
    assert index_rows(table)[-2][1] == "needs all twelve"


def test_the_overall_index_is_the_geometric_mean_of_twelve() -> None:
    trials = [
        replace(one, runtime=runtime)
        for place, (test, row) in enumerate(INDEX.items())
        for block in (1, 2, 3)
        for runtime in ("lxc", "native")
        for one in [trial(test, block, row.baseline * 2.0**place)]
    ]
    (table,) = index_tables(cells(trials), ["native", "lxc"])
    assert table.columns == ("native", "lxc") and [name for name, _ in table.rows] == list(INDEX)
    for _, value, low, high in table.overall:
        assert value == pytest.approx(10 * 2.0**5.5) and low == pytest.approx(high) and math.isclose(low, value)
    assert [row[0] for row in index_rows(table)][-2:] == ["overall", "overall, as the script scores"]
    assert "gcc 12" in index_title(
        replace(table, variant="our set, 1 copy"), {"our set compiler": "gcc 12", "published set compiler": "no"}
    )


def test_several_instances_stand_across_with_the_host_before_them_and_what_each_has_left() -> None:
    at_once = [
        one
        for test, row in INDEX.items()
        for block in (1, 2, 3)
        for one in (
            trial(test, block, 2 * row.baseline, runtime="native"),
            trial(test, block, row.baseline),
            trial(test, block, *[row.baseline / 2] * 2),
            trial(test, block, *[row.baseline / 4] * 4),
        )
        if test != "spawn" or len(one.figures) < 4  # one is not measured yet
    ]
    tables = index_tables(cells([*at_once, trial("pipe", 1, 9.0, runtime="lxc")]), ["native", "docker", "lxc"])
    (table,) = tables_over_n(tables)
    assert table.columns == ("native", "1 instance", "2 instances", "4 instances") and table.engine == "docker"
    assert index_title(table, {}) == "UnixBench index, docker, up to 4 instances at once, w"
    rows = {name: cells for name, *cells in index_rows(table, scores=False)}
    assert rows["pipe"] == ["20.0 (20 … 20)", "10.0 (10 … 10)"] + [
        f"{index} ({whole} … {whole}; {share} % of one's)"
        for index, whole, share in (("5.0", "5", "50.0"), ("2.5", "2", "25.0"))
    ]
    assert rows["spawn"][2:] == ["5.0 (5 … 5; 50.0 % of one's)", "–"]
    assert rows["overall"][2:] == ["5.0 (5 … 5; 50.0 % of one's)", "needs all twelve"]


def test_without_several_instances_there_is_no_such_table_and_native_has_one_of_its_own() -> None:
    assert tables_over_n(index_tables(cells([trial("pipe", 1, 9.0)]), ["docker"])) == []
    several = [trial("pipe", 1, 9.0, runtime="native"), trial("pipe", 1, 4.0, 5.0, runtime="native")]
    (table,) = tables_over_n(index_tables(cells(several), ["native"]))
    assert table.columns == ("1 instance", "2 instances") and table.engine == "native"


def test_the_quick_form_says_what_it_leaves_out() -> None:
    suite, quick = UnixBench(), replace(JOB, quick=True)
    assert len(suite.tests(JOB)) == 12 * 2 * 4 and suite.left_out(JOB) == ()
    assert len(suite.tests(quick)) == 12 + 1 and any("one core" in text for text in suite.left_out(quick))
    with_tree = suite.tests(replace(JOB, unixbench_source="/x"))
    assert {test.variant.split(", ")[0] for test in with_tree if not test.only_in} == {"published set"}
    assert {test.variant.split(", ")[0] for test in with_tree if test.only_in} == {"our set"}


def test_what_is_no_tree_of_the_published_set_is_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("tree")
    with pytest.raises(UserInputError, match="holds no UnixBench"):
        check(UNIXBENCH, folder)
    inner = folder / "UnixBench"
    for name in ("src", "pgms"):
        (inner / name).mkdir(parents=True)
    (inner / "Makefile").write_text("programs:\n")
    assert check(UNIXBENCH, folder) == inner == check(UNIXBENCH, inner)
    before = tree_digest(inner)
    (inner / "src/a.c").write_text("int a;\n")
    assert tree_digest(inner) != before


def test_with_the_published_set_ours_runs_beside_it_natively() -> None:
    with_tree = replace(JOB, unixbench_source="/there", quick=True)
    planned = plan(UnixBench().tests(with_tree), ["native", "docker"], 2, 1)
    ours = {(one.test.test, one.runtime, one.test.count) for one in planned if one.test.variant.startswith("our set")}
    assert ours == {(test, "native", 1) for test in INDEX}
    published = {one.runtime for one in planned if one.test.variant.startswith("published set")}
    assert published == {"native", "docker"}
    assert not [one for one in UnixBench().tests(JOB) if one.only_in]


def test_our_set_is_checked_test_by_test_where_both_were_measured() -> None:
    def scored(test: str, which: str, score: float, runtime: str = "native") -> list[BenchTrial]:
        way = f"{which}, 1 copy, all cores"
        return [replace(trial(test, n, score * (1 + n / 1e4), runtime=runtime), variant=way) for n in range(1, 7)]

    found = checked(
        cells(
            [
                *scored("pipe", "our set", 1100.0),
                *scored("pipe", "published set", 1000.0),
                *scored("dhry2reg", "our set", 9000.0),
                *scored("dhry2reg", "published set", 3000.0),
                *scored("syscall", "our set", 5.0),  # nothing to be set beside
                *scored("pipe", "published set", 900.0, "docker"),
            ]
        )
    )
    assert [(one.test, one.runtime) for one in found] == [("pipe", "native"), ("dhry2reg", "native")]
    near, far = check_rows(found)
    assert near[4].startswith("1.10×") and near[5] == "" and near[2] == "1,100 lps"
    assert far[4].startswith("3.00×") and "far apart" in far[5]
    assert checked(cells(scored("pipe", "our set", 1.0))) == []
