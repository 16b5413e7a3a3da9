# SPDX-License-Identifier: Apache-2.0
"""A bundle made by somebody who means harm: nothing of it starts a program of the host."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes.bundle_data import EXERCISE, write_bundle
from tests.fakes.verbs import verify_verb

from vmtailor.base.errors import AnswerNo, UserInputError
from vmtailor.model.exercise import Expect, StepKind
from vmtailor.model.image import ImageConfig
from vmtailor.stages.verify import Target

pytestmark = [pytest.mark.attack, pytest.mark.usefixtures("own_cache")]


HOST_COMMAND = "sh -c 'touch /tmp/\\x1b[31mowned {port:80}'"
SAME_EXERCISE = """
[ready]
kind = "tcp"
port = 80
[[load]]
kind = "http"
port = 80
[load.expect]
status = 200
[[load]]
kind = "host-command"
argv = ["my-own-check", "{port:80}"]
[[load]]
kind = "tcp"
port = 80
"""
#: As fit reads it: where a file says nothing, the status is to be 200.
FITTED = replace(
    EXERCISE, load=(replace(EXERCISE.load[0], expect=Expect(status=200)), *EXERCISE.load[1:]), origin="exercise.toml"
)


def argvs(target: Target) -> list[tuple[str, ...]]:
    return [step.argv for step in target.exercise.load if step.kind is StepKind.HOST_COMMAND]


def test_programs_that_a_bundle_names_are_not_run_and_the_verdict_says_so(
    tmp_path: Path, verified: list[Target], capsys: pytest.CaptureFixture[str]
) -> None:
    verify_verb(write_bundle(tmp_path))
    said = capsys.readouterr()
    assert argvs(verified[0]) == [] and len(verified[0].exercise.load) == 2
    assert f"; without 1 program that the bundle would run on this host: {HOST_COMMAND} " in said.out
    assert "--trust-host-commands" in said.out and said.err == "" and "\x1b" not in said.out
    verify_verb(tmp_path, json=True)
    document = json.loads(capsys.readouterr().out)
    assert document["verified"] is True and document["skipped"] == [HOST_COMMAND]
    assert document["schema"] == "vmtailor/verification/5"
    write_bundle(tmp_path, image=ImageConfig("amd64", user="fail"))
    with pytest.raises(AnswerNo, match="without 1 program"):
        verify_verb(tmp_path)


def test_programs_that_the_user_trusts_are_named_before_they_run(
    tmp_path: Path, verified: list[Target], capsys: pytest.CaptureFixture[str]
) -> None:
    verify_verb(write_bundle(tmp_path), trust_host_commands=True)
    said = capsys.readouterr()
    assert argvs(verified[0]) == [EXERCISE.load[1].argv]
    assert said.err == f"will be run on this host: {HOST_COMMAND}\n" and "without" not in said.out


def test_a_machine_that_publishes_nothing_runs_no_programs(
    tmp_path: Path, verified: list[Target], capsys: pytest.CaptureFixture[str]
) -> None:
    verify_verb(write_bundle(tmp_path, network=False), trust_host_commands=True)
    said = capsys.readouterr()
    assert said.err == "" and "without 1 program" in said.out and "publishes no port" in said.out


def test_the_users_exercise_brings_the_users_programs(
    tmp_path: Path, verified: list[Target], capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(SAME_EXERCISE)
    verify_verb(write_bundle(tmp_path / "bundle", FITTED), exercise=mine)
    assert argvs(verified[0]) == [("my-own-check", "{port:80}")]
    assert capsys.readouterr().err == "will be run on this host: my-own-check '{port:80}'\n"
    mine.write_text(SAME_EXERCISE.replace("200", "404"))
    with pytest.raises(UserInputError, match="asks the container other things"):
        verify_verb(tmp_path / "bundle", exercise=mine)
