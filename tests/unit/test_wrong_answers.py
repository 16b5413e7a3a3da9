# SPDX-License-Identifier: Apache-2.0
"""A wrong answer is shown by its first lines, in every kind of check, bounded and on one line."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.analysis.guests import boots
from vmtailor.base import wrong_answers
from vmtailor.model.exercise import Expect, Step, StepKind
from vmtailor.model.guest import Answer, StepResult

PAGE = "<!DOCTYPE html>\n<html>\n<head><title>404</title></head>\n<body>\n"


def wrong(why: str, head: str, **more: Any) -> StepResult:
    return StepResult(0, "http", 1, 0, True, 1, wrong=Answer(200, length=len(head), head=head, **more), why=why)


def step(kind: StepKind = StepKind.HTTP, **expect: Any) -> Step:
    return Step(kind, port=80, argv=("app",), expect=Expect(**expect))


@pytest.mark.parametrize(
    ("asked", "result", "said"),
    [
        (
            step(contains="Welcome"),
            wrong("does not contain 'Welcome'", PAGE),
            r"expected the body to contain 'Welcome'; the body began: '<!DOCTYPE html>\n<html>\n<head><title>404"
            "</title></head> …'",
        ),
        (
            step(StepKind.COMMAND, contains="PONG"),
            wrong("does not contain 'PONG'", "NOAUTH\n"),
            "expected the output to contain 'PONG'; the output began: 'NOAUTH'",
        ),
        (step(contains="x"), wrong("does not contain 'x'", ""), "to contain 'x'; the body is empty"),
        (step(status=200), wrong("status 502, not 200", "Bad\r\n"), "status 502, not 200; the body began: 'Bad'"),
        (
            step(StepKind.COMMAND, stdout="a\nb\n"),
            wrong("4 bytes with SHA-256 12…, not 34…", "a\nc\n"),
            r"expected the output 'a\nb'; the output began: 'a\nc'",
        ),
        (step(sha256="ab" * 32), wrong("9 bytes with SHA-256 12…", "other"), "SHA-256 12…; the body began: 'other'"),
        # Init tells the last words of a command that failed; without an answer there is nothing to show.
        (step(StepKind.COMMAND, exit_code=0), wrong("exit status 1, not 0: no", "no"), "exit status 1, not 0: no"),
        (step(status=200), wrong("connect: refused", "", error="connect: refused"), "connect: refused"),
        (step(StepKind.TCP), wrong("connect: refused", ""), "connect: refused"),
    ],
)  # fmt: skip
def test_a_fault_has_the_beginning_of_the_answer(asked: Step, result: StepResult, said: str) -> None:
    found = boots.why_wrong(result, asked)
    assert found.startswith(": ") and found.endswith(said), found


@pytest.mark.parametrize(
    ("wanted", "found", "said"),
    [
        ("hello\n", "hullo\n", "line 1 is 'hullo', expected 'hello'"),
        ("a\nb\nc\n", "a\nb\nd\n", "line 3 is 'd', expected 'c'"),
        ("a\nb", "a", "line 2 is missing, expected 'b'"),
        ("a", "a\nb", "line 2 is 'b', expected missing"),
        ("a\n", "a", "it ends with 0 line ends, expected with 1"),
        ("a \n", "a\n", "line 1 is 'a', expected 'a '"),
        (f"{'-' * 500}A", f"{'-' * 500}B", f"line 1 is '… {'-' * 20}B', expected '… {'-' * 20}A'"),
        (f"{'-' * 90}A", "-" * 300, f"line 1 is '… {'-' * 100} …', expected '… {'-' * 20}A'"),
        ("-" * 200, "-" * 100, f"line 1 is '… {'-' * 20}', expected '… {'-' * 100} …'"),
        ("a", "a\x1b[2J", r"line 1 is 'a\x1b[2J', expected 'a'"),
    ],
)
def test_the_first_line_that_differs_is_named(wanted: str, found: str, said: str) -> None:
    assert wrong_answers.unlike("output", wanted, found) == f"the output is not as expected: {said}"
    assert wrong_answers.differs("output", wanted, found).endswith(said.replace("expected", "on the baseline"))


@pytest.mark.attack
@given(st.text(), st.text())
def test_what_is_shown_is_one_short_printable_line(wanted: str, text: str) -> None:
    for said in (wrong_answers.lacks("body", wanted, text), wrong_answers.unlike("body", wanted, text)):
        assert said.isprintable() or "\u202f" in said
        assert len(said) < 450


@pytest.mark.attack
def test_a_long_answer_is_cut() -> None:
    said = wrong_answers.began("body", "\x1b]0;x\x07" * 1_000_000)
    assert len(said) < 200 and said.endswith(" …'")
