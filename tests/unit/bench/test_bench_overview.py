# SPDX-License-Identifier: Apache-2.0
"""The sheet at a glance, what a stranger is told, and figures by their parts: nothing is a gap."""

from __future__ import annotations

import pytest

from vmtailor.bench.analysis import benchmarks
from vmtailor.bench.analysis.cells import cells, cells_of
from vmtailor.bench.analysis.figure_parts import SMALLER, part, parts_of
from vmtailor.bench.analysis.phrases import ISOLATION, isolation_row
from vmtailor.bench.model.job import BenchJob
from vmtailor.bench.model.results import (
    CLOCK,
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
from vmtailor.bench.pages.bench_page import bench_page, noise_words
from vmtailor.bench.pages.overview import Shade, overviews
from vmtailor.bench.run.machine_counts import machine_tests
from vmtailor.bench.suites.registry import SUITES
from vmtailor.model.change import Verdict

HOST = BenchHost("here", "6.1.0", "a processor", 2, 1 << 33, "x", "v2", False, False)


def trial(runtime: str, block: int, *figures: BenchFigure, test: str = "report", variant: str = "warm") -> BenchTrial:
    failure = None if figures else BenchFailure("it ended with 9", "killed")
    return BenchTrial(
        SuiteName.STARTUP, test, runtime, 1, variant, block, 0.0, 1.0, figures, failure, HostNoise(0.0, 0.25, 2400.0)
    )


def exits(seconds: float) -> BenchFigure:
    return BenchFigure("exit", seconds, "s")


def run_of(*trials: BenchTrial) -> HostRun:
    rows = (RuntimeIdentity("native"), RuntimeIdentity("docker"), RuntimeIdentity("lxc"))
    lost = RuntimeIdentity("kata", missing="get it there")
    return HostRun(HOST, "sha256:0", False, 1, (), (*rows, lost), trials, ())


def test_each_runtime_has_a_word_in_each_row() -> None:
    blocks = range(1, 9)
    run = run_of(
        *(trial("native", n, exits(1 + n / 1e6), BenchFigure("create", 0.1, "s")) for n in blocks),
        *(trial("docker", n, exits(3 + n / 1e6)) for n in blocks),
        *(trial("lxc", n) for n in blocks),
        *(trial("vm:stock", n, BenchFigure("kernel", 5.0, "instructions"), test="boot", variant=CLOCK) for n in (1, 2)),
    )
    wall, clock = overviews(run, cells_of(run))
    assert wall.runtimes == ("native", "docker", "lxc", "kata") and clock.runtimes == ("vm:stock",)
    rows = {row.figure: row.cells for row in wall.rows}
    assert [cell.words for cell in rows["exit"]] == ["1.00 s", "3.00×", "failed", "missing"]
    assert "2 counted boots, the same" in clock.rows[0].cells[0].tip  # why two are enough stands in the row
    assert "counted" not in rows["exit"][0].tip
    assert [cell.shade for cell in rows["exit"]] == [Shade.BASELINE, Verdict.WORSE, Shade.FAILED, Shade.NONE]
    assert rows["create"][1].words == "no such step" and "it ended with 9" in rows["exit"][2].tip
    assert "get it there" in rows["exit"][3].tip
    page = bench_page(BenchResults("0", (run,)))
    assert "At a glance: wall clock" in page and "At a glance: instruction clock" in page and "no such step" in page
    assert "others took 25 % of the processors" in noise_words(run) and "2,400 … 2,400 MHz" in page


def test_what_others_swayed_below_nothing_is_no_multiple() -> None:
    found = cells([trial("native", n, exits(2.0)) for n in (1, 2)] + [trial("docker", n, exits(-9.0)) for n in (1, 2)])
    assert [cell.against for cell in found] == [None, None]


def test_a_figure_by_its_parts_has_nothing_left_over() -> None:
    def figures(net: float, fs: float) -> tuple[BenchFigure, ...]:
        named = {"kernel": 1000 + net + fs + 2, part("kernel", "mm"): 1000.0, part("kernel", "net"): net,
                 part("kernel", "fs"): fs, part("kernel", "lib"): 1.0, part("kernel", "ipc"): 1.0}  # fmt: skip
        return tuple(BenchFigure(name, value, "instructions") for name, value in named.items() if value)

    found = cells([trial("vm:stock", 1, *figures(500, 0)), trial("vm:mine", 1, *figures(0, 30))])
    (one,) = parts_of(found)
    assert (one.figure, one.runtimes) == ("kernel", ("vm:stock", "vm:mine"))
    assert [name for name, _ in one.rows] == ["all", "mm", "net", "fs", SMALLER]
    assert dict(one.rows)["net"] == (500.0, 0.0) and dict(one.rows)[SMALLER] == (2.0, 2.0)
    whole = one.rows[0][1]
    assert tuple(map(sum, zip(*(values for _, values in one.rows[1:]), strict=True))) == whole


def test_every_suite_and_test_says_what_it_is() -> None:
    job = BenchJob(tuple(SuiteName), ("native",), (1, 4), 6, False, 1, "", "", "", "", "", "")
    tests = [test for suite in SUITES.values() for test in suite.tests(job)] + machine_tests(job)
    assert [test.test for test in tests if not benchmarks.test_words(test.suite, test.test, test.variant)] == []
    assert all(benchmarks.SUITE_WORDS[name] for name in SuiteName)


def test_every_registered_test_has_its_function_and_its_figures() -> None:
    done = {(suite.name, test) for suite in SUITES.values() for test in suite.trials}
    counted = {(SuiteName.STARTUP, "boot"), (SuiteName.MEMORY, "density")}  # of boots of machines alone
    assert benchmarks.BENCHMARKS.keys() == done | counted
    assert [row.name for row in benchmarks.BENCHMARKS.values() if not row.figures] == ["boot"]
    found = benchmarks.benchmark("isolation", "cpu").measured({"t2": [1.0, None, 2.0], "did not report": 1.0})
    assert [(one.name, one.value, one.unit, one.instance) for one in found] == [
        ("t2", 1.0, "s", 0), ("t2", 2.0, "s", 2), ("did not report", 1.0, "of 4", 0),
    ]  # fmt: skip
    with pytest.raises(KeyError):
        benchmarks.benchmark("isolation", "cpu").measured({"t3": 1.0})


def test_what_an_instance_saw_is_told_in_full() -> None:
    seen = RuntimeIdentity(
        "docker", "24", "6.1", capabilities=14, seccomp="filter", no_new_privileges=True, lsm="docker-default",
        program_sha256="a" * 64, cgroup="2:cpu:/docker/x 1:memory:/docker/x 0::/",
    )  # fmt: skip
    row = dict(zip(ISOLATION, isolation_row(seen), strict=True))
    assert row["cgroup"] == "/docker/x, /" and row["security module"] == "docker-default"
    assert row["capabilities"] == "14, no new ones" and row["program"] == f"as in the image ({'a' * 12})"
