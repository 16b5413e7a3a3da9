# SPDX-License-Identifier: Apache-2.0
"""The table of `make bench-fit`: figures beside their goals, a missed goal marked."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

import pytest
from tests.fakes.fit_run_data import fit_run
from tests.fakes.tools import load_tool

from vmtailor.stages.report import fit_document


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    return load_tool("bench_fit_table")


def test_another_processor_has_goals_of_its_own(bench: ModuleType) -> None:
    usual, other = ({row.title: row for row in bench.rows_for(name)} for name in ("x86_64", "arm64"))
    assert tuple(usual.values()) == bench.ROWS
    memory = "least memory (MiB)"
    assert (usual[memory].goal, other[memory].goal) == ("≤ 32", "≤ 24")
    assert other[memory].good(24 << 20, None) and not other[memory].good(25 << 20, None)
    assert other["verified"] is usual["verified"]


def test_goals_and_what_misses_them(bench: ModuleType) -> None:
    run = fit_run()
    good = replace(
        run.tailored, init_instructions_net=29_000_000, reset_instructions_net=39_000_000, kernel_bytes=8_000_000,
        min_memory_bytes=24 << 20, request_kernel_instructions=1.0, spread=(("init_instructions", 0.0),),
    )  # fmt: skip
    bad = replace(good, init_instructions_net=31_000_000, kernel_bytes=10_000_000, kernel_compressed_bytes=4_000_000)

    def result(side: object, **timing: float) -> object:
        made = replace(run, tailored=side, verified=True, unexplained=())  # type: ignore[arg-type]
        times = bench.Timing(
            **{"first_fit_s": 100, "second_fit_s": 5, "planning_s": 5, "planning_bytes": 10**8, **timing}
        )
        return bench.Result("web", fit_document(made), made, times)

    head, rows, missed = bench.table_of([result(good)])
    assert missed == []
    assert head == ["figure", "goal", "web", "web: baseline"]
    cells = {row[0]: row for row in rows}
    assert cells["kernel entry → init, net (M)"][2] == "29.00"
    assert cells["least memory (MiB)"][2] == "24"
    assert cells["largest spread between boots"][2] == "none"
    assert all(len(row) == len(head) for row in rows)
    _, rows, missed = bench.table_of([result(bad, second_fit_s=11)])
    assert missed == [
        "web: kernel entry → init, net (M)",
        "web: kernel file booted (MB)",
        "web: second fit (s)",
    ]
    assert [row[0] for row in rows if "✗" in row[2]] == [
        "kernel entry → init, net (M)",
        "kernel file booted (MB)",
        "second fit (s)",
    ]


def test_removals_and_markdown(bench: ModuleType) -> None:
    removals = [
        bench.Removal("A", "demanded", "breaks", "no | answer", ("B", "C")),
        bench.Removal("D", "policy", "policy", "kept"),
        bench.Removal("E", "platform", "unneeded", "passes"),
    ]
    assert bench.share(removals, "unneeded") == "1 of 3 (33 %)"
    run = fit_run()
    result = bench.Result("web", fit_document(run), run, bench.Timing(1, 1, 1, 1), (), tuple(removals))
    rows = bench.removal_rows(result)
    assert rows[0] == ["A", "demanded", "breaks", "no | answer (with it go B, C)"]
    lines = bench.markdown(["symbol", "cause", "without it", "why"], rows).splitlines()
    assert lines[1] == "| --- | --- | --- | --- |" and "no \\| answer" in lines[2]
    assert len(lines) == 5
