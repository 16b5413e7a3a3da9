# SPDX-License-Identifier: Apache-2.0
"""`run` knows every option of `docker run`: it has it, or says why not; and what it says is on the page."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from vmtailor.base.errors import ExitCode, UserInputError
from vmtailor.cli.docker_options import Parity, known, subjects
from vmtailor.cli.main import app, exit_code_of

ROOT = Path(__file__).resolve().parents[2]
ALL = [(name, option) for subject in subjects() for option in subject.options for name in option.names]


def offered() -> set[str]:
    """Names of the options that `run --help` shows."""
    text = CliRunner().invoke(app, ["run", "--help"], env={"COLUMNS": "300", "TERM": "dumb"}).stdout
    return {word.strip("│, ") for word in text.split() if word.strip("│, ").startswith("-")}


def test_no_option_is_there_twice() -> None:
    names = [name for name, _ in ALL]
    assert len(names) == len(set(names)) > 100


def test_what_is_missing_says_what_to_do_instead() -> None:
    subjects.cache_clear()
    own = {name: option.own_hint for group in subjects() for option in group.options for name in option.names}
    assert own["--runtime"] == "--accelerator chooses between kvm and tcg" and own["--publish"] == ""


def test_what_is_said_to_be_there_is_there_and_what_is_not_is_not() -> None:
    shown = offered()
    for name, option in ALL:
        if name != "--help":
            assert (name in shown) == (option.answer is not Parity.MISSING), name


@pytest.mark.parametrize(
    "arguments", [("--runtime", "x"), ("-itc",), ("--volumes-from=a",), ("-c", "5"), ("--gpus", "all")]
)
def test_an_option_that_is_not_there_says_why_and_what_to_do(arguments: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, ["run", *arguments, "bundle"])
    assert isinstance(result.exception, UserInputError)
    assert "run has no -" in result.exception.message and result.exception.hint


def test_an_option_that_docker_has_neither() -> None:
    assert known("--nope") is None
    assert not isinstance(CliRunner().invoke(app, ["run", "--nope"]).exception, UserInputError)


def test_an_answer_without_a_next_step_of_its_own_names_the_page() -> None:
    hints = {option.hint for _, option in ALL if not option.own_hint}
    assert hints == {"vmtailor help run-and-docker-run has all options of docker run"}
    own = {option.own_hint for _, option in ALL} - {""}
    assert own and own <= {option.hint for _, option in ALL}


def test_an_option_is_known_by_each_of_its_names() -> None:
    subjects.cache_clear()
    for names, answer in (
        (("--memory-swap", "--memory-swappiness"), Parity.MISSING),
        (("-v", "--volume"), Parity.DIFFERS),
        (("-p", "--publish"), Parity.DIFFERS),
    ):
        found = known(names[0])
        assert found is not None and found.answer is answer and set(names) <= set(found.names) and found.says
        assert known(names[1]) is found
    assert all(group.title and group.options for group in subjects())


def test_an_option_that_is_there_and_lacks_its_value_is_not_said_to_be_missing() -> None:
    result = CliRunner().invoke(app, ["run", "-p"])
    assert result.exit_code == 2 and "run has no" not in result.output
    assert not isinstance(result.exception, UserInputError)


def test_every_option_that_is_the_same_is_shown_to_be() -> None:
    """By a script that podman runs too, or by a test that is there."""
    table = tomllib.loads((ROOT / "tests/data/podman/cases.toml").read_text())
    printed = json.loads((ROOT / "tests/data/podman/expected.json").read_text())["printed"]
    held = {name: case["name"] for case in table["case"] for name in case.get("holds", ())} | table["tests"]
    same = {option.names: option for _, option in ALL if option.answer is Parity.SAME}
    assert {names for names in same if not held.keys() & set(names)} == set()
    assert held.keys() <= {name for names in same for name in names}
    names = [case["name"] for case in table["case"]]
    for where in (*table["tests"].values(), *table["rows"].values()):
        file, _, test = where.partition("::")
        assert f"def {test}(" in (ROOT / file).read_text() if test else where in names, where
    assert len(names) == len(set(names)) >= 60 and printed.keys() == set(names)
    assert sum(case.get("quick", False) for case in table["case"]) >= 20
    for case in table["case"]:
        assert ("prints" in case) == ("reason" in case), case["name"]
        # A difference that is none any more is no longer told.
        assert case.get("prints") != printed[case["name"]], case["name"]


def test_every_other_row_that_says_the_same_is_shown_to_be() -> None:
    """Of the tables that are written by hand, whose last column is docker's."""
    rows = tomllib.loads((ROOT / "tests/data/podman/cases.toml").read_text())["rows"]
    page = (ROOT / "docs/reference/run-and-docker-run.md").read_text().partition("## What a bundle needs")[0]
    cells = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("|")]
    same = [row[0] for row in cells if row[-1].startswith("the same")]
    assert len(same) == len(rows) and all(sum(row.startswith(key) for key in rows) == 1 for row in same), same


def test_the_page_is_what_the_data_says() -> None:
    tool = ROOT / "tools" / "docker_run_reference.py"
    result = subprocess.run(
        [sys.executable, str(tool), "--check"], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("code", "arguments", "exits"),
    [
        (ExitCode.USER_INPUT, ["run", "x"], 125),
        (ExitCode.HOST, ["--debug", "run", "-p", "80:80"], 125),
        (ExitCode.BUG, ["run"], 125),
        (ExitCode.DONE, ["run", "--help"], 0),
        (ExitCode.INTERRUPTED, ["run"], 130),
        (ExitCode.USER_INPUT, ["exec", "web"], 125),
        (ExitCode.NO, ["exec", "nobody", "ls"], 1),
        (ExitCode.NO, ["run"], 125),
        (ExitCode.HOST, ["fit", "run"], 3),
        (ExitCode.USER_INPUT, [], 2),
    ],
)
def test_errors_of_run_and_exec_are_125(code: int, arguments: list[str], exits: int) -> None:
    assert exit_code_of(code, arguments) == exits
