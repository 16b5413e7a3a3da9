# SPDX-License-Identifier: Apache-2.0
"""The pictures of the benchmarks' page: to scale, with nothing left out that failed."""

from __future__ import annotations

import random

import pytest

from vmtailor.bench.analysis.cells import cells
from vmtailor.bench.model.results import (
    CLOCK,
    BenchFailure,
    BenchFigure,
    BenchHost,
    BenchResults,
    BenchTrial,
    HostRun,
    RuntimeIdentity,
    SuiteName,
)
from vmtailor.bench.pages.bench_page import bench_page
from vmtailor.bench.pages.curve_charts import curves, distributions
from vmtailor.bench.pages.published_tables import layout_tables
from vmtailor.bench.pages.ratio_bars import ratios

HOST = BenchHost("here", "6.1.0", "a processor", 2, 1 << 33, "x", "v2", False, False)
REASON = "2 of 4 instances <reported>"


def trial(runtime: str, block: int, seconds: float | None, count: int = 1, variant: str = "warm") -> BenchTrial:
    figures = () if seconds is None else (BenchFigure("exit", seconds, "s"),)
    failure = BenchFailure(REASON) if seconds is None else None
    return BenchTrial(SuiteName.STARTUP, "serial", runtime, count, variant, block, 0.0, 1.0, figures, failure)


def trials() -> list[BenchTrial]:
    draw = random.Random(3)
    found = []
    for name, middle in (("native", 0.1), ("docker", 0.4)):
        for count in (1, 2, 4):
            for block in range(1, 9):
                fails = name == "docker" and count == 4
                found.append(trial(name, block, None if fails else middle * count * draw.uniform(0.95, 1.05), count))
    return found


def test_what_failed_is_a_point_of_its_curve_with_its_reason() -> None:
    (found,) = curves(cells(trials()))
    by_name = {one.runtime: one for one in found.lines}
    assert [count for _, count in found.marks] == ["1", "2", "4"]
    assert len(by_name["native"].dots) == 3 and by_name["native"].failed == ()
    assert len(by_name["docker"].dots) == 2 and by_name["docker"].failed == ((100.0, f"docker, 4 instances: {REASON}"),)
    # Where nobody has any value there is nothing to draw.
    assert curves(cells([trial("native", 1, None, 1), trial("native", 1, None, 2)])) == []


def test_a_distribution_goes_from_none_to_all_and_has_every_sample() -> None:
    values = [3.0, 1.0, 2.0, 2.0]
    (found,) = distributions(cells([trial("native", block, value) for block, value in enumerate(values, 1)]))
    (line,) = found.lines
    assert [y for _, y, _ in line.dots] == [75.0, 50.0, 25.0, 0.0]
    assert [x for x, _, _ in line.dots] == sorted(x for x, _, _ in line.dots) and "4 of 4 within 3.00 s" in line.dots[
        3
    ][2]
    assert line.points.split()[0].endswith(",100.00") and line.points.split()[-1].endswith(",0.00")
    assert [words for _, words in found.marks] == ["0.00 µs", "1.50 s", "3.00 s"] and found.scale == "from zero"
    assert distributions(cells([trial("native", 1, 1.0), trial("native", 2, 1.0)])) == []  # too few
    counted = [trial("vm:stock", block, 1.0, variant=CLOCK) for block in range(1, 6)]
    assert distributions(cells(counted)) == []


def test_bars_begin_at_the_baseline_and_end_at_the_ratio() -> None:
    (found,) = ratios(cells(trials()))
    assert found.baseline == "native" and len(found.groups) == 3
    bar = found.groups[0].bars[0]
    assert bar.runtime == "docker" and bar.begin == pytest.approx(found.one) and bar.end > found.one
    assert bar.low is not None and bar.high is not None and bar.low < bar.end <= bar.high
    assert [group.failed for group in found.groups] == [(), (), (f"docker: {REASON}",)]
    # Faster than native: to the other side.
    faster = [trial(name, n, s) for n in range(1, 9) for name, s in (("native", 1.0 + n / 1e4), ("lxc", 0.5 + n / 1e4))]
    (other,) = ratios(cells(faster))
    bar = other.groups[0].bars[0]
    assert bar.end == pytest.approx(other.one) and bar.begin < other.one
    assert ratios(cells([trial("docker", n, 1.0) for n in range(1, 5)])) == []


def test_the_page_has_all_of_them_and_the_published_layout() -> None:
    run = HostRun(
        HOST, "sha256:0", True, 1, (), (RuntimeIdentity("native"), RuntimeIdentity("docker")), tuple(trials())
    )
    page = bench_page(BenchResults("0", (run,)))
    for words in ('class="ratios"', "Distribution: startup: serial", "In the published layout", 'class="k1 cross"'):
        assert words in page
    assert "Of the quick form: not to be set beside published tables." in page
    assert page.count("docker, 4 instances: 2 of 4 instances &lt;reported&gt;") >= 2 and "<reported>" not in page
    tables = list(layout_tables(run))
    assert [table.header for table in tables] == [("", "native", "docker")] * 3
    assert tables[2].rows[0][2] == f"failed: {REASON}"
