# SPDX-License-Identifier: Apache-2.0
"""What was wrong with a boot, in sentences, and where two machines answer differently."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from vmtailor.analysis.guests import boots
from vmtailor.model.boots.boot import Outcome
from vmtailor.model.boots.ending import End, Ending, Gathered
from vmtailor.model.exercise import DERIVED, Exercise, Expect, Ready, ReadyKind, Step, StepKind
from vmtailor.model.guest import READY_STEP, Answer, GuestMark, GuestNote, GuestReport, StepResult

RUN_TO_END = Exercise("x", Ready(ReadyKind.EXIT), expect=Expect(exit_code=3, stdout="hello\n"))
SERVER = Exercise(
    "x",
    Ready(ReadyKind.TCP, Step(StepKind.TCP, port=80), 20.0),
    (
        Step(StepKind.HTTP, port=80, path="/a", repeat=5, expect=Expect(status=200)),
        Step(StepKind.HOST_COMMAND, argv=("curl",)),
        Step(StepKind.COMMAND, argv=("app", "check")),
    ),
)


def outcome(report: GuestReport, ending: Ending = Ending.EXITED) -> Gathered:
    code = {Ending.EXITED: 0, Ending.PANIC: 0, Ending.DEADLINE: None, Ending.DIED: 1}[ending]
    end = End(ending, "qemu …", "tail", "qemu: complaint", 12.0, code)
    return Gathered(end, 1000.0, report)


def result(step: int, done: int = 1, right: int | None = None, **more: Any) -> StepResult:
    return StepResult(step, "http", done, done if right is None else right, True, 1000, **more)


FINE = GuestReport(exit_code=3, stdout="hello\n")
SERVED = GuestReport(exit_code=0, results=(result(READY_STEP), result(0, 5), result(1)))


def test_nothing_is_wrong() -> None:
    assert boots.failures(outcome(FINE), RUN_TO_END) == ()
    assert boots.failures(outcome(SERVED), SERVER) == ()


@pytest.mark.parametrize(
    ("report", "ending", "said"),
    [
        (GuestReport(), Ending.PANIC, "kernel panicked"),
        (GuestReport(), Ending.DEADLINE, "not done after 12 s"),
        (GuestReport(), Ending.DIED, "QEMU ended with status 1"),
        (GuestReport(), Ending.EXITED, "did not run to its end"),
        (GuestReport(fatal=GuestNote("TMPFS", "mount: no such device")), Ending.EXITED, "(kernel symbol TMPFS)"),
        (GuestReport(exit_code=127, exit_reason="execve(x): No such file"), Ending.EXITED, "execve(x)"),
        (GuestReport(exit_code=4, stdout="hello\n"), Ending.EXITED, "the exit code is 4, expected 3"),
        (
            GuestReport(exit_code=3, stdout="hullo\n"),
            Ending.EXITED,
            "the output is not as expected: line 1 is 'hullo', expected 'hello'",
        ),
        (
            GuestReport(
                exit_code=3, stdout="hello\n", results=(result(READY_STEP, 1, 0, why="it did not end in time"),)
            ),
            Ending.EXITED,
            "the program did not end within 120 s",
        ),
    ],
)
def test_a_program_that_should_run_to_its_end(report: GuestReport, ending: Ending, said: str) -> None:
    found = boots.failures(outcome(report, ending), RUN_TO_END)
    assert any(said in sentence for sentence in found), found


def test_a_worker_that_never_ends_is_no_proof_that_it_ran_to_its_end() -> None:
    """It was stopped, here as there, and its status is that of the signal."""
    stopped = GuestReport(exit_code=143, results=(result(READY_STEP, 1, 0, why="it did not end in time"),))
    derived = Exercise(DERIVED[2], Ready(ReadyKind.EXIT))
    (said,) = boots.failures(outcome(stopped), derived)
    assert "so the program was expected to end" in said and "--exercise FILE" in said
    (said,) = boots.failures(outcome(stopped), dataclasses.replace(derived, origin="exercise.toml"))
    assert said == "the program did not end within 120 s"


def test_the_outputs_digest_is_judged() -> None:
    wanted = Exercise("x", Ready(ReadyKind.EXIT), expect=Expect(sha256="AB" * 32))
    assert boots.failures(outcome(GuestReport(exit_code=0, stdout_sha256="ab" * 32)), wanted) == ()
    (said,) = boots.failures(outcome(GuestReport(exit_code=0, stdout_sha256="cd" * 32)), wanted)
    assert said == "the output has SHA-256 cdcdcdcdcdcd…, not ABABABABABAB…; the output is empty"


@pytest.mark.parametrize(
    ("results", "said"),
    [
        ((), "not become ready within 20 s; it ended with exit code 0"),
        ((result(READY_STEP, 3, 0, why="refused"),), "not become ready within 20 s: refused"),
        ((result(READY_STEP), result(1)), "load step 1 (GET :80/a) was not done"),
        ((result(READY_STEP), result(0, 5, 4, why="status 500"), result(1)), "4 of 5 right: status"),
        ((result(READY_STEP), result(0, 4), result(1)), "load step 1 (GET :80/a): 4 of 5 right"),
        ((result(READY_STEP), result(0, 5), result(1, 1, 0)), "load step 2 (app check): 0 of 1 right"),
    ],
)  # fmt: skip
def test_a_server(results: tuple[StepResult, ...], said: str) -> None:
    found = boots.failures(outcome(GuestReport(exit_code=0, results=results)), SERVER)
    assert len(found) == 1 and said in found[0], found


def test_a_limit_that_a_slow_machine_made_longer_is_named() -> None:
    notes = (GuestNote("", "not ready within 120000 ms, made 480000 ms since this machine is slow"),)
    never = StepResult(READY_STEP, "http", 1, 0, True, 480 * 10**9, why="no answer")
    found = boots.failures(outcome(GuestReport(exit_code=0, notes=notes, results=(never,))), SERVER)
    limit = f"{SERVER.ready.timeout_s:g} s (made 480 s, since this machine is slow): no answer"
    assert found == (f"the container did not become ready within {limit}; it ended with exit code 0",)


def test_differences_where_nobody_said_what_is_right() -> None:
    free = dataclasses.replace(RUN_TO_END, expect=Expect())
    assert boots.differences(FINE, FINE, free) == ()
    assert (
        "exit code is 4, on the baseline 3"
        in boots.differences(FINE, GuestReport(exit_code=4, stdout="hello\n"), free)[0]
    )
    assert "output" in boots.differences(FINE, GuestReport(exit_code=3, stdout="hullo\n"), free)[0]
    one, other = (
        GuestReport(exit_code=0, results=(result(0, 5, first=Answer(status=status, sha256=body)),))
        for status, body in ((200, "aa"), (200, "bb"))
    )
    assert "body" in boots.differences(one, other, SERVER)[0]
    worse = GuestReport(exit_code=0, results=(result(0, 5, first=Answer(status=500)),))
    assert "step 1: answered with status 500, on the baseline status 200" in boots.differences(one, worse, SERVER)[0]
    # A body that differs from request to request on the baseline says nothing.
    changing = GuestReport(exit_code=0, results=(dataclasses.replace(one.results[0], same=False),))
    assert boots.differences(changing, other, SERVER) == ()
    # So does output that differs from run to run.
    timed = [GuestReport(exit_code=3, stdout=f"at {clock}: hello\n") for clock in ("10:01", "11:02", "12:03")]
    assert "output" in boots.differences(timed[0], timed[2], free)[0]
    assert boots.differences(timed[0], timed[2], free, timed[1].stdout) == ()
    other_words = GuestReport(exit_code=3, stdout="at 12:03: hullo\n")
    assert "output" in boots.differences(timed[0], other_words, free, timed[1].stdout)[0]
    # A step that was not done fails by itself.
    assert boots.differences(one, GuestReport(exit_code=0), SERVER) == ()


def test_evidence_shows_what_was_said_last() -> None:
    report = GuestReport(stdout="out\n" * 100 + "last words\n", stderr="err\n", console="oops\n")
    text = boots.evidence(outcome(report, ending=Ending.DIED), ["it failed"])
    for part in ("it failed", "last words", "err", "oops", "qemu: complaint", "qemu …"):
        assert part in text
    assert text.count("out\n") < 30


def test_a_boot_on_the_wall_clock_has_marks_but_no_counts() -> None:
    report = dataclasses.replace(
        FINE, marks=(GuestMark("init", 5000, 1, 1, 1000.25), GuestMark("ready", 9000, 1, 1, 1001.0))
    )
    boot = boots.make_boot(outcome(report), RUN_TO_END)
    init = boot.milestone("init")
    assert init is not None and (init.executed, init.virtual_ns, init.wall_s) == (None, 5000, 0.25)
    assert boot.container is not None and boot.container.answers_right and boot.container.requests == 0
    assert boot.phases == () and boot.outcome is Outcome.READY and boot.instructions is None
