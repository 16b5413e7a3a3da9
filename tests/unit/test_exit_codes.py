# SPDX-License-Identifier: Apache-2.0
"""The program as a user starts it: exit codes, and errors without a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fakes.fit_run_data import fit_run
from tests.fakes.started import Start

from vmtailor.base.errors import HostError
from vmtailor.base.files import records
from vmtailor.base.process import CommandFailed, ProgramResult
from vmtailor.cli import main


def program(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", "from vmtailor.cli.main import main; main()", *arguments]
    env = {**os.environ, **environment}
    return subprocess.run(argv, capture_output=True, text=True, env=env, timeout=60, check=False)


def test_help_and_version() -> None:
    assert program("--version").stdout.startswith("vmtailor ")
    assert program("--help").returncode == 0


@pytest.mark.parametrize(
    "arguments", [("explain",), ("explain", "/nowhere"), ("no-such-verb",), ("report", "--no-such-option", "x")]
)
def test_wrong_input_exits_with_2_and_a_hint(start: Start, arguments: tuple[str, ...]) -> None:
    code, _, err = start(*arguments)
    assert code == 2
    assert "error:" in err and "hint:" in err and "Traceback" not in err


def test_a_damaged_record_is_said_to_be_damaged(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"schema": "vmtailor/fit-run/1", "version": 3}')
    result = program("explain", str(tmp_path))
    assert result.returncode == 2 and "damaged" in result.stderr and "Traceback" not in result.stderr


def test_a_host_that_lacks_tools_exits_with_3(tmp_path: Path) -> None:
    tmp_path.joinpath("empty").mkdir()
    result = program("doctor", "--json", PATH=str(tmp_path / "empty"), XDG_CACHE_HOME=str(tmp_path))
    assert result.returncode == 3
    document = json.loads(result.stdout)
    assert document["works"] is False and "qemu-system-x86" in document["install"]


FULL = ProgramResult(argv=("tool",), returncode=1, stdout=b"", stderr=b"x: No space left on device", seconds=1.0)


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (FileNotFoundError(2, "No such file or directory", "/x"), 3, "error: /x: No such file or directory"),
        (OSError(28, "No space left on device", "/cache/x"), 3, "error: no space is left in /cache"),
        (OSError("odd"), 3, "error: odd"),
        (ValueError("odd"), 70, "bug: ValueError: odd"),
        (CommandFailed(FULL), 3, "error: no space is left for temporary files"),
        (HostError("no tool"), 3, "error: no tool"),
    ],
)
def test_what_no_verb_foresaw_has_a_code_and_a_hint(
    error: Exception, code: int, says: str, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(**_: object) -> None:
        raise error

    monkeypatch.setattr(main, "app", fails)
    ended, out, err = start("doctor")
    assert (ended, out) == (code, "") and says in " ".join(err.split())
    ended, _, err = start("run", "b")
    assert ended == 125 and "Traceback" not in err
    _, _, err = start("doctor", "--debug")
    assert "Traceback" in err and says in " ".join(err.split())


def test_an_answer_exits_with_0(tmp_path: Path) -> None:
    records.save(fit_run(), tmp_path / "run.json")
    result = program("explain", str(tmp_path), "EPOLL")
    assert result.returncode == 0 and "EPOLL is in" in result.stdout
