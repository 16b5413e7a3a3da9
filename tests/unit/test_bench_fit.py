# SPDX-License-Identifier: Apache-2.0
"""The table of `make bench-fit`: figures beside their goals, a missed goal marked."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from tests.fakes.fit_run_data import fit_run
from tests.fakes.tools import load_tool

from vmtailor.cli import cache
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


def test_each_margin_has_a_column_and_goals_of_figures_are_for_none(bench: ModuleType) -> None:
    run = fit_run()
    times = bench.Timing(1200, 5, 5, 10**8, processor_s=654.0)
    document = fit_document(run)
    usual = bench.Result("web", document, run, times)
    wider = bench.Result("web", document, run, times, margin="default")
    head, rows, missed = bench.table_of([usual, wider])
    assert head[2::2] == ["web", "web (default margin)"]
    assert {row[0]: row[2] for row in rows}["the first fit's processor time (s)"] == "654.0"
    assert "web: cold fit (s)" in missed and "web (default margin): cold fit (s)" not in missed
    failed = replace(wider, run=replace(run, verified=False))
    assert "web (default margin): verified" in bench.table_of([failed])[2]


def test_a_cold_fit_is_told_by_kinds_that_the_cache_has() -> None:
    assert set(load_tool("bench_fit").RESULTS) <= cache._KINDS.keys()


PROGRAM = """
import http.server, signal, sys
verb, *words = sys.argv[1:]
assert verb == "run"
if words[0] != "-p":
    print(open(words[-1]).read())
    sys.exit(3)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
address, port, inner = words[1].split(":")
assert inner == "80"

class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(open(words[-1], "rb").read())

http.server.HTTPServer((address, int(port)), Page).serve_forever()
"""


@pytest.mark.lengthy
@pytest.mark.parametrize(
    ("answer", "text", "expected", "words"),
    [
        (("made to measure", 3, 0), "made to measure", True, "ends with 3"),
        (("made to measure", 0, 0), "made to measure", False, "ends with 3"),
        (("made to measure", 3, 0), "no", False, 'prints "no"'),
        (("made to measure", 0, 80), "a page made to measure", True, "serves 22 bytes through a published port"),
        (("made to measure", 0, 80), "another page", False, "not its page"),
    ],
)
def test_a_bundle_is_run_as_a_user_would(
    answer: tuple[str, int, int], text: str, expected: bool, words: str, tmp_path: Path
) -> None:
    started, bundle, program = load_tool("bench_fit_started"), tmp_path / "bundle", tmp_path / "program.py"
    bundle.write_text(text)
    program.write_text(PROGRAM)
    found = started.did(bundle, started.Answer(*answer), (sys.executable, str(program)))
    assert found.expected is expected and words in found.what, found
    assert started.did(bundle, None) is None


def test_a_machine_that_ends_is_not_waited_for(tmp_path: Path) -> None:
    started = load_tool("bench_fit_started")
    found = started.did(tmp_path, started.Answer("page", port=80), (sys.executable, "-c", "raise SystemExit(5)"))
    assert not found.expected and "answers nothing" in found.what


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
