# SPDX-License-Identifier: Apache-2.0
"""Trials that go wrong: each is a result, and what was measured before it is kept."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.fakes.native_runtime import run_in

from vmtailor.base.errors import HostError
from vmtailor.base.files import records
from vmtailor.base.process import CommandFailed, ProgramResult
from vmtailor.bench.analysis.benchmarks import BenchTest
from vmtailor.bench.analysis.schedule import PlannedTrial, Schedule
from vmtailor.bench.model.results import BenchFailure, BenchFigure, BenchHost, BenchResults, HostRun, SuiteName
from vmtailor.bench.run import harness, results_file, rounds_boot
from vmtailor.bench.run.bench_rows import BenchRow, HostRow
from vmtailor.bench.run.shared_boots import SharedBoots
from vmtailor.bench.runtimes.stopwatch import TimedCommand
from vmtailor.bench.suites import bench_run
from vmtailor.bench.suites.bench_run import AFTER_END_S, RUN_OVER, TIMED_OUT, BenchRun, TrialFailed
from vmtailor.bench.suites.registry import SUITES

HOST = BenchHost("here", "6.1.0", "a processor", 2, 1 << 33, "x", "v2", False, False)
KNOWN = HostRun(HOST, "sha256:0", True, 1, (), (), ())
PLANNED = [PlannedTrial(BenchTest(SuiteName.STARTUP, "report", 1, "warm"), "native", block) for block in (1, 2, 3)]
FIGURE = BenchFigure("exit", 1.0, "s")


@pytest.fixture
def run(tmp_path: Path) -> BenchRun:
    return run_in(tmp_path)


def play(monkeypatch: pytest.MonkeyPatch, trial: Callable[[BenchRun], BenchFigure]) -> None:
    """What a trial of the suite does."""
    suite = SimpleNamespace(trial=lambda run, _test, _runtime: (trial(run),))
    monkeypatch.setitem(SUITES, SuiteName.STARTUP, suite)


def row_of(run: BenchRun) -> BenchRow:
    return HostRow(run, "native", contextlib.ExitStack())


def tried(run: BenchRun) -> Any:
    return harness._tried(run, PLANNED[0], row_of(run), rounds_boot.AtOnce(run.job))


@pytest.mark.parametrize(
    ("error", "reason", "evidence"),
    [
        (TrialFailed("it ended with 3", "its words"), "it ended with 3", "its words"),
        (HostError("no network", details="ip: denied"), "no network", "ip: denied"),
        (CommandFailed(ProgramResult(("mount",), 32, b"", b"busy", 0.1)), "mount exited with 32", "busy"),
        (subprocess.TimeoutExpired(["sh"], 5.0), TIMED_OUT, "Command '['sh']' timed out after 5.0 seconds"),
        (OSError(28, "No space left on device"), "the host refused: [Errno 28] No space left on device", ""),
    ],
)
def test_whatever_goes_wrong_is_a_trial_with_a_failure_and_no_figures(
    run: BenchRun, monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str, evidence: str
) -> None:
    def fail(run: BenchRun) -> BenchFigure:
        run.notes.append("it was so far")
        raise error

    play(monkeypatch, fail)
    found = tried(run)
    assert found.failure == BenchFailure(reason, evidence) and found.figures == ()
    assert found.key == PLANNED[0].key and found.notes == ("it was so far",)
    assert found.command.startswith("vmtailor bench startup --on native --only report")
    play(monkeypatch, lambda _: FIGURE)  # and the next one has nothing of it
    found = tried(run)
    assert found.failure is None and found.figures == (FIGURE,) and found.notes == ()


def test_a_fault_of_ours_is_no_result(run: BenchRun, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: BenchRun) -> BenchFigure:
        raise ZeroDivisionError

    play(monkeypatch, fail)
    with pytest.raises(ZeroDivisionError):
        tried(run)


def test_what_was_measured_is_kept_when_the_run_is_interrupted(run: BenchRun, monkeypatch: pytest.MonkeyPatch) -> None:
    left = iter([FIGURE])

    def interrupted(_: BenchRun) -> BenchFigure:
        if (figure := next(left, None)) is None:
            raise KeyboardInterrupt
        return figure

    play(monkeypatch, interrupted)
    # As if writing took long: until the end, nothing is written again.
    monkeypatch.setattr(results_file, "_SHARE", 1e-12)
    monkeypatch.setattr(results_file, "_WAIT_S", 1e6)
    with pytest.raises(KeyboardInterrupt):
        harness._each(run, Schedule(PLANNED, (), None, None), {"native": row_of(run)}, SharedBoots.of(run.job), KNOWN)
    ((kept,),) = [one.trials for one in records.load(BenchResults, Path(run.job.out)).runs]
    assert kept.key == PLANNED[0].key and kept.figures == (FIGURE,)


def test_what_an_instance_needs_is_taken_away_even_where_it_could_not_be_made(run: BenchRun) -> None:
    native: Any = run.runtimes["native"]
    with run.placed("native", run.spec(["true"])) as spec:
        assert native.cleared == []
    assert native.cleared == [spec.name]
    native.refuses = True
    other = run.spec(["true"])
    with pytest.raises(HostError, match="no room"), run.placed("native", other):
        pytest.fail("it was placed")
    assert native.cleared == [spec.name, other.name]


def test_a_run_whose_time_is_over_ends_its_last_command_and_says_so(
    run: BenchRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run.left_s() == float("inf")
    asked: list[float] = []

    def until(_words: object, *, deadline_s: float, **_: object) -> TimedCommand:
        asked.append(deadline_s)
        return TimedCommand((), None, deadline_s, None, b"", b"still at it")

    monkeypatch.setattr(bench_run, "timed", until)
    with pytest.raises(TrialFailed, match=TIMED_OUT):
        run.run("native", ["sleep", "60"], deadline_s=30.0)
    for since_s, left_s in ((10.0, AFTER_END_S - 10.0), (1e6, 1.0)):
        run.job = replace(run.job, until_s=time.monotonic() - since_s)
        assert run.left_s() == pytest.approx(left_s, abs=1.0)
        with pytest.raises(TrialFailed, match=RUN_OVER) as ended:
            run.run("native", ["sleep", "60"], deadline_s=1000.0)
        assert ended.value.details == "still at it" and asked[-1] == pytest.approx(left_s, abs=1.0)
    with pytest.raises(TrialFailed, match=TIMED_OUT):  # its own time was over before
        run.run("native", ["sleep", "60"], deadline_s=0.5)
    assert asked[0] == 30.0 and asked[-1] == 0.5
